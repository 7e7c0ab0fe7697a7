"""Refuses to write over the user's files, unless ``--force`` is given."""

from pathlib import Path

from orchestrator.labels import option
from orchestrator.storage.layout import LOGS, RECORDS, RUN
from orchestrator.units import listed

_STARTED = frozenset({RECORDS, LOGS, "lock"})
"""Names that a sweep writes before ``run.json``. A folder that holds only these is a run's."""


def refuse_used_folder(folder: Path, *, force: bool = False) -> None:
    """Raise FileExistsError without ``force`` if it has files, NotADirectoryError on a file."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, not a folder; nothing was written")
    names = sorted(entry.name for entry in folder.iterdir())
    if names and not force:
        raise FileExistsError(
            f"{folder.resolve()} already holds {listed(names, 3)}; nothing was written. Name "
            f"another folder, or give {option('force')} to overwrite files of the same names"
        )


def refuse_folder_of_another(folder: Path, *, force: bool = False) -> None:
    """Raise FileExistsError, without ``force``, if a folder holds files that are not a run's."""
    if not folder.is_dir() or (folder / RUN).exists():
        return
    if not {entry.name for entry in folder.iterdir()} <= _STARTED:
        refuse_used_folder(folder, force=force)


def refuse_used_file(path: Path, *, force: bool = False) -> None:
    """Raise FileExistsError if ``path`` exists and ``force`` is not given."""
    if path.exists() and not force:
        raise FileExistsError(
            f"{path} already exists; nothing was written. Name another file, or give "
            f"{option('force')} to overwrite it"
        )
