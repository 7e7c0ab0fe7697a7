"""One trial, run in the test's own process."""

from pathlib import Path

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from jobs.trial.run import run


def measured(spec: TrialSpec, folder: Path, outcome: Outcome = Outcome.OK) -> TrialRecord:
    """The record of a trial, which must end like this."""
    record = run(spec, lambda phase: None, scratch=folder)
    assert record.outcome is outcome, record.reason
    return record
