"""An evaluation and a checkpoint after the training: no figure of it changes, errors are flags."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.flags import FlagKind, flags_of
from jobs.record import Outcome
from jobs.spec import TrialSpec
from jobs.trial.run import run
from jobs.trial.upkeep_peaks import measure
from orchestrator.analysis.configuration import whole_memory
from tests.conftest import build_tiny_spec


def _with_upkeep(spec: TrialSpec) -> TrialSpec:
    return replace(spec, measure=replace(spec.measure, evaluate_and_save=True))


@pytest.mark.parametrize("loop", ["trainer", "accelerate"])
def test_run_evaluates_and_saves_after_the_training(tmp_path: Path, loop: str) -> None:
    plain = build_tiny_spec({"loop": loop}, inspect=False)
    before = run(plain, lambda phase: None, scratch=tmp_path)
    phases: list[str] = []
    after = run(_with_upkeep(plain), phases.append, scratch=tmp_path)
    assert after.outcome is Outcome.OK, after.reason
    assert phases[-1] == "evaluate_and_save"
    assert {"evaluate_seconds", "save_seconds"} <= set(after.measurements)
    assert not {"evaluate_seconds", "save_seconds"} & set(before.measurements)
    assert after.steps["loss"] == before.steps["loss"]
    assert not list(tmp_path.iterdir())


class _Arguments:
    eval_batch_size = 2


class _Setup:
    arguments = _Arguments()
    dataset = range(8)


class _Trained:
    """A loop whose checkpoint cannot be written, and that evaluates on what it is given."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.rows: list[int] = []

    def evaluate(self, rows: list[int]) -> None:
        self.rows = rows

    def save(self) -> None:
        raise self.error


def test_measure_with_an_impossible_checkpoint_flags_it() -> None:
    trained = _Trained(ValueError("no state dict"))
    values = measure(trained, _Setup(), None, {})  # type: ignore[arg-type]
    assert trained.rows == [0, 1, 2, 3]
    assert "evaluate_seconds" in values
    assert "save_seconds" not in values
    assert [flag.kind for flag in flags_of(values)] == [FlagKind.CANNOT_SAVE]


def test_measure_out_of_memory_is_no_flag() -> None:
    import torch

    trained = _Trained(torch.cuda.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        measure(trained, _Setup(), None, {})  # type: ignore[arg-type]


def test_whole_memory_includes_what_was_measured_beside_the_training() -> None:
    row = {"peak_reserved_bytes": 100, "device_peak_bytes": 150, "peak_allocated_bytes": 90}
    assert whole_memory(row, "device_peak_bytes") == 150
    larger = {**row, "peak_evaluate_reserved_bytes": 130, "peak_save_reserved_bytes": 100}
    assert whole_memory(larger, "device_peak_bytes") == 180
    assert whole_memory({**row, "peak_save_allocated_bytes": 95}, "peak_allocated_bytes") == 95


def test_identity_without_upkeep_stays() -> None:
    spec = build_tiny_spec()
    assert replace(spec.measure, evaluate_and_save=False) == spec.measure
    assert _with_upkeep(spec).trial_id != spec.trial_id
