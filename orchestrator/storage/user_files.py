"""What the program may write over: nothing of the user's, unless ``--force`` is given."""

from __future__ import annotations

from pathlib import Path

from orchestrator.storage.layout import LOGS, RECORDS, RUN

_STARTED = frozenset({RECORDS, LOGS, "lock"})
"""What a sweep writes before ``run.json``: a folder that holds nothing else is a run's."""
_NAMED = 3
"""Files that a message names; the others are counted."""


def refuse_used_folder(folder: Path, *, force: bool = False) -> None:
    """Raises FileExistsError if ``folder`` holds files and ``force`` is not given.

    Raises NotADirectoryError if something other than a folder has the name, whatever ``force``.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, not a folder; nothing was written")
    names = sorted(entry.name for entry in folder.iterdir())
    if names and not force:
        raise FileExistsError(
            f"{folder.resolve()} already holds {_listed(names)}; nothing was written. Name another "
            "folder, or give --force to overwrite files of the same names"
        )


def refuse_folder_of_another(folder: Path, *, force: bool = False) -> None:
    """Raises FileExistsError if ``folder`` holds files, is no run's folder, and ``force`` is not
    given. A sweep goes on in a run's folder.
    """
    if not folder.is_dir() or (folder / RUN).exists():
        return
    if {entry.name for entry in folder.iterdir()} <= _STARTED:
        return
    refuse_used_folder(folder, force=force)


def refuse_used_file(path: Path, *, force: bool = False) -> None:
    """Raises FileExistsError if there is a file ``path`` and ``force`` is not given."""
    if path.exists() and not force:
        raise FileExistsError(
            f"{path} already exists; nothing was written. Name another file, or give --force to "
            "overwrite it"
        )


def _listed(names: list[str]) -> str:
    """``a, b, c and 4 more``."""
    others = len(names) - _NAMED
    if others <= 0:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {others} more"
