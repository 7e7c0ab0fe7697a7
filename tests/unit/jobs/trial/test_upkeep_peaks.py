"""What follows a training is measured after it: no figure of it changes, errors are flags."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.flags import FlagKind, flags_of
from jobs.spec import UpkeepSpec
from jobs.trial.upkeep_peaks import actions, measure
from orchestrator.analysis.configuration import whole_memory
from tests.conftest import build_tiny_spec
from tests.support.one_trial import measured

ALL = UpkeepSpec(compute_metrics_rows=5, load_best=True, resume=True, merge=True)
PHASES = ("evaluate", "save", "load_best", "resume", "merge")


@pytest.mark.parametrize(
    ("loop", "adapter"), [("trainer", "lora_r8"), ("trainer", "none"), ("accelerate", "lora_r8")]
)
def test_run_measures_each_phase_after_the_training(tmp_path, loop, adapter):
    plain = build_tiny_spec({"loop": loop, "adapter": adapter}, inspect=False)
    asked = replace(plain, measure=replace(plain.measure, evaluate_and_save=True, upkeep=ALL))
    assert asked.trial_id != plain.trial_id
    before, after = measured(plain, tmp_path), measured(asked, tmp_path)
    # Without an adapter there is nothing to merge.
    phases = set(PHASES[: 5 if adapter == "lora_r8" else 4])
    columns = {f"{phase}_seconds" for phase in phases}
    columns |= {f"peak_{phase}_host_bytes" for phase in phases}
    assert after.measurements.keys() - before.measurements.keys() == columns
    assert not {kind for kind in after.measurements["flags"] if kind.startswith("cannot")}
    assert after.steps["loss"] == before.steps["loss"]
    assert not list(tmp_path.iterdir())


SETUP: Any = SimpleNamespace(arguments=SimpleNamespace(eval_batch_size=2), dataset=range(8))


def trained_by(error: Exception, evaluated: list[Any]) -> Any:
    """A loop whose checkpoint cannot be written, and that notes what it evaluates."""

    def save() -> None:
        raise error

    def evaluate(rows: list[int], keeps_logits: bool) -> None:
        evaluated.append((rows, keeps_logits))

    return SimpleNamespace(evaluate=evaluate, save=save)


@pytest.mark.parametrize(
    ("wanted", "rows"), [(None, [0, 1, 2, 3]), (3, [1, 2, 3]), (10, [4, 5, 6, 7, 0, 1, 0, 1, 2, 3])]
)
def test_evaluation_keeps_the_logits_of_as_many_rows_as_asked(wanted, rows):
    evaluated = []
    trained = trained_by(ValueError("no state dict"), evaluated)
    phases = []
    asked = actions(trained, SETUP, None, UpkeepSpec(compute_metrics_rows=wanted))
    values = measure(asked, {}, phases.append)
    assert evaluated == [(rows, wanted is not None)]
    assert phases == ["evaluate", "save"]
    assert "evaluate_seconds" in values
    assert "save_seconds" not in values
    assert [flag.kind for flag in flags_of(values)] == [FlagKind.CANNOT_SAVE]


def test_measure_out_of_memory_is_no_flag():
    trained = trained_by(torch.cuda.OutOfMemoryError("CUDA out of memory"), [])
    with pytest.raises(torch.cuda.OutOfMemoryError):
        measure(actions(trained, SETUP, None, UpkeepSpec()), {}, print)


def test_whole_memory_includes_what_was_measured_beside_the_training():
    row = {"peak_reserved_bytes": 100, "device_peak_bytes": 150, "peak_allocated_bytes": 90}
    assert whole_memory(row, "device_peak_bytes") == 150
    larger = {**row, "peak_evaluate_reserved_bytes": 130, "peak_save_reserved_bytes": 100}
    assert whole_memory(larger, "device_peak_bytes") == 180
    assert whole_memory({**row, "peak_merge_allocated_bytes": 95}, "peak_allocated_bytes") == 95
    host = {"host_peak_resident_bytes": 70, "peak_resume_host_bytes": 80}
    assert whole_memory(host, "host_peak_resident_bytes") == 80
