"""Reads a run folder: its records, or its tables if only those were kept."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.anatomy_record import Anatomy
from jobs.record import TrialRecord
from orchestrator.storage.layout import TRIALS
from orchestrator.storage.record_reader import find_records
from orchestrator.storage.run_metadata import UnreadableRunError, read_run
from orchestrator.storage.tables.table_reader import (
    losses_in_steps_file,
    read_anatomies,
    read_trials_file,
)
from orchestrator.storage.tables.trial_table import TrialTable, table_of_records


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContents:
    """A run's trials, and their losses."""

    trials: TrialTable
    losses: Mapping[str, Sequence[float]]
    """Trial -> its losses step by step, warm-up included."""
    records: Sequence[TrialRecord] = ()
    """What the trials were read from; empty if the folder has tables only."""


def read_run_folder(run_folder: Path) -> RunContents:
    """The trials and losses of a run. Raises FileNotFoundError or UnreadableRunError."""
    contents = find_records(run_folder)
    records = contents.records
    unreadable = contents.sentences()
    if records:
        trials = table_of_records(records, read_run(run_folder), unreadable=unreadable)
        return RunContents(trials=trials, losses=losses_of(records), records=records)
    try:
        trials = read_trials_file(run_folder / TRIALS)
    except FileNotFoundError as error:
        if unreadable:
            raise UnreadableRunError("; ".join(unreadable)) from None
        raise error
    trials = dataclasses.replace(trials, unreadable=(*trials.unreadable, *unreadable))
    return RunContents(trials=trials, losses=losses_in_steps_file(run_folder))


def losses_of(records: Sequence[TrialRecord]) -> dict[str, Sequence[float]]:
    """Trial -> its losses step by step, warm-up included."""
    return {record.trial_id: list(record.steps.get("loss", ())) for record in records}


def anatomies_of(run_folder: Path) -> dict[str, Anatomy]:
    """Trial -> its anatomy, for the trials that were profiled."""
    records = find_records(run_folder).records
    if records:
        return {record.trial_id: record.anatomy for record in records if record.anatomy}
    return read_anatomies(run_folder)
