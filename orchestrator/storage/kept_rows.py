"""A table that is there already loses no rows by being written again, unless the user says so."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from orchestrator.storage.layout import RECORDS, SUPERSEDED, TRIALS
from orchestrator.storage.tables.table_reader import trial_ids_in_file
from orchestrator.units import count

_NAMED = 6


class FewerRowsError(RuntimeError):
    """A table would lose rows; the text says which, and what to do."""


def refuse_fewer_rows(
    run_folder: Path, trial_ids: Collection[str], unreadable: Sequence[str]
) -> None:
    """Refuse to replace ``trials.parquet`` by a table of ``trial_ids`` that has fewer rows.

    Rows of records that a sweep has moved aside are no loss. ``unreadable`` are sentences about
    records that cannot be read. Raises FewerRowsError.
    """
    path = run_folder / TRIALS
    in_table = trial_ids_in_file(path)
    if in_table is None:
        return
    lost = sorted(in_table - set(trial_ids) - _superseded(run_folder))
    if not lost:
        return
    names = ", ".join(lost[:_NAMED])
    if len(lost) > _NAMED:
        names += f" and {len(lost) - _NAMED} more"
    reason = "their records are not in the folder"
    if unreadable:
        reason = "; ".join(unreadable)
    raise FewerRowsError(
        f"{path} has {count(len(lost), 'row')} that would be lost ({names}): {reason}. Nothing was "
        f"written; --allow-fewer-rows moves today's tables to {SUPERSEDED}/ and writes smaller ones"
    )


def _superseded(run_folder: Path) -> set[str]:
    """The trials whose records were moved aside."""
    # A second record of one trial has a number behind its name.
    names = (run_folder / SUPERSEDED).glob(f"*/{RECORDS}/*.json")
    return {path.stem.partition("-")[0] for path in names}
