"""Refuses to replace a table by one with fewer rows, unless the user allows it."""

from collections.abc import Collection, Sequence
from pathlib import Path

from orchestrator.labels import option
from orchestrator.storage.layout import RECORDS, SUPERSEDED, TRIALS
from orchestrator.storage.tables.table_reader import trial_ids_in_file
from orchestrator.units import count, listed


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
