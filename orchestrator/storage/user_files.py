"""Refuses to write over the user's files, unless ``--force`` is given."""

from collections.abc import Collection, Sequence
from pathlib import Path

from orchestrator.labels import option
from orchestrator.storage.layout import LOGS, RECORDS, RUN, SUPERSEDED, TRIALS
from orchestrator.storage.tables.table_reader import trial_ids_in_file
from orchestrator.units import count, listed

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


class FewerRowsError(RuntimeError):
    """A table would lose rows. The message says which ones, and what to do."""


def refuse_fewer_rows(
    run_folder: Path, trial_ids: Collection[str], unreadable: Sequence[str]
) -> None:
    """Raise FewerRowsError if ``trials.parquet`` has rows of trials that are not in ``trial_ids``,
    and whose records no sweep has moved aside. ``unreadable`` are sentences for the message, about
    records that cannot be read."""
    path = run_folder / TRIALS
    # The file of a second record of the same trial ends in a hyphen and a number.
    aside = (run_folder / SUPERSEDED).glob(f"*/{RECORDS}/*.json")
    superseded = {record.stem.partition("-")[0] for record in aside}
    lost = sorted(trial_ids_in_file(path) - set(trial_ids) - superseded)
    if not lost:
        return
    reason = "; ".join(unreadable) or "their records are not in the folder"
    raise FewerRowsError(
        f"{path} has {count(len(lost), 'row')} that would be lost ({listed(lost, 6)}): {reason}. "
        f"Nothing was written; {option('allow-fewer-rows')} moves today's tables to {SUPERSEDED}/ "
        "and writes smaller ones"
    )
