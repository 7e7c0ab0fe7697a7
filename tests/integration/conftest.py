"""A browser; trials in the processes of a slot, as a sweep runs them, and their scripts."""

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import pytest

from jobs.isolation.slot import Slot
from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, TrialSpec
from orchestrator.export.writing import export
from tests.conftest import build_tiny_spec
from tests.support.browser import headless, is_required
from tests.support.fresh_processes import AS_MEASURED, figures_of, waiting_parent

TIMEOUT = 800.0


class Run(Protocol):
    """Runs a trial, which must end like this; a mapping has the choices of the tiny trial."""

    def __call__(
        self, trial: TrialSpec | Mapping[str, Choice], outcome: Outcome = Outcome.OK
    ) -> TrialRecord: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium. Skips the tests where there is none, or fails where it is required."""
    with headless() as running:
        if running is None and is_required():
            pytest.fail("BROWSER_TESTS=required, but there is no Chromium", pytrace=False)
        if running is None:
            pytest.skip("no Chromium or no playwright on this machine")
        yield running


@pytest.fixture(scope="module")
def run(processes: ForkServerContext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One slot for a whole file, which runs each trial once."""
    records: dict[str, TrialRecord] = {}
    parent = waiting_parent(processes, tmp_path_factory.mktemp("parent"), 1)
    with parent as variables, patch.dict(os.environ, variables), Slot(cpus=1) as slot:
        slot.start()

        def run_once(
            trial: TrialSpec | Mapping[str, Choice], outcome: Outcome = Outcome.OK
        ) -> TrialRecord:
            spec = trial if isinstance(trial, TrialSpec) else build_tiny_spec(trial)
            if spec.trial_id not in records:
                records[spec.trial_id] = slot.run(spec, TIMEOUT)
            record = records[spec.trial_id]
            assert record.outcome is outcome, f"{record.reason}\n{record.provenance.log}"
            return record

        yield run_once


def assert_export_trains_as(
    context: ForkServerContext,
    spec: TrialSpec,
    losses: Sequence[float],
    folder: Path,
    *,
    rel: float,
) -> None:
    """Assert that the script exported for a trial has the mean of these losses."""
    export(spec, folder / "exported", label="a test")
    options = AS_MEASURED if spec.data.file is None else AS_MEASURED[1:]
    # TRL has a learning rate of its own, which the trial leaves out.
    rate = spec.settings.training_arguments.get("learning_rate", 5e-5)
    arguments = ["--max_steps", str(len(losses)), "--learning_rate", str(rate), *options]
    figures = figures_of(context, arguments, folder / "exported")
    assert figures["train_loss"] == pytest.approx(statistics.fmean(losses), rel=rel)
