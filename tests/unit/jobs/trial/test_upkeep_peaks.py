"""An evaluation and a checkpoint after the training: no figure of it changes, errors are flags."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.flags import FlagKind, flags_of
from jobs.trial.upkeep_peaks import measure
from orchestrator.analysis.configuration import whole_memory
from tests.conftest import build_tiny_spec
from tests.support.one_trial import measured


@pytest.mark.parametrize("loop", ["trainer", "accelerate"])
def test_run_evaluates_and_saves_after_the_training(tmp_path, loop):
    plain = build_tiny_spec({"loop": loop}, inspect=False)
    asked = replace(plain, measure=replace(plain.measure, evaluate_and_save=True))
    assert asked.trial_id != plain.trial_id
    before, after = measured(plain, tmp_path), measured(asked, tmp_path)
    assert {"evaluate_seconds", "save_seconds"} <= set(after.measurements)
    assert not {"evaluate_seconds", "save_seconds"} & set(before.measurements)
    assert after.steps["loss"] == before.steps["loss"]
    assert not list(tmp_path.iterdir())


SETUP: Any = SimpleNamespace(arguments=SimpleNamespace(eval_batch_size=2), dataset=range(8))


def trained_by(error: Exception, evaluated: list[int]) -> Any:
    """A loop whose checkpoint cannot be written, and that notes the rows it evaluates on."""

    def save() -> None:
        raise error

    return SimpleNamespace(evaluate=evaluated.extend, save=save)


def test_measure_with_an_impossible_checkpoint_flags_it():
    evaluated = []
    values = measure(trained_by(ValueError("no state dict"), evaluated), SETUP, None, {})
    assert evaluated == [0, 1, 2, 3]
    assert "evaluate_seconds" in values
    assert "save_seconds" not in values
    assert [flag.kind for flag in flags_of(values)] == [FlagKind.CANNOT_SAVE]


def test_measure_out_of_memory_is_no_flag():
    trained = trained_by(torch.cuda.OutOfMemoryError("CUDA out of memory"), [])
    with pytest.raises(torch.cuda.OutOfMemoryError):
        measure(trained, SETUP, None, {})


def test_whole_memory_includes_what_was_measured_beside_the_training():
    row = {"peak_reserved_bytes": 100, "device_peak_bytes": 150, "peak_allocated_bytes": 90}
    assert whole_memory(row, "device_peak_bytes") == 150
    larger = {**row, "peak_evaluate_reserved_bytes": 130, "peak_save_reserved_bytes": 100}
    assert whole_memory(larger, "device_peak_bytes") == 180
    assert whole_memory({**row, "peak_save_allocated_bytes": 95}, "peak_allocated_bytes") == 95
