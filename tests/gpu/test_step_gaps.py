"""The gap between two steps on a real GPU: a planted pause is in it, and nowhere else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.isolation.slot import Slot
from jobs.record import Outcome
from jobs.spec import TrialSpec
from tests.gpu.shared import BERT_LARGE, gpu_marks, planned
from tests.support.faults import with_fault

PAUSE = 0.05
"""Seconds that the planted callback sleeps between two steps."""
TOLERANCE = 0.1
"""Of the pause: how far a figure may be off. The host's own work varies by about a millisecond."""

CASES = {
    "eager": "{precision: bf16, micro_batch: 64}",
    "accumulating": "{precision: bf16, micro_batch: 48, accumulation: 2}",
    "compiled": "{precision: bf16, micro_batch: 64, compile: inductor_regional}",
    "deepspeed": "{precision: bf16, micro_batch: 64, offload: zero2_cpu_optimizer}",
}
"""Batches that keep the GPU busy for longer than the host needs to start their kernels. With a
smaller batch, the pause also makes the forward pass longer: the GPU has run dry, and waits for the
start of each kernel."""

pytestmark = gpu_marks()


def planned_case(folder: Path, case: str) -> TrialSpec:
    return planned(folder, BERT_LARGE, CASES[case], (512, 2048), warmup_steps=5, steps=15)


def figures(slot: Slot, spec: TrialSpec) -> Mapping[str, Any]:
    record = slot.run(spec, 600.0)
    if record.outcome is Outcome.UNSUPPORTED:
        pytest.skip(record.reason)
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.provenance.log}"
    return record.measurements


def seconds_in(row: Mapping[str, Any], column: str) -> float:
    """A share of the counted time as seconds of a step."""
    return float(row[column]) * float(row["step_seconds_median"])


@pytest.mark.parametrize("case", CASES)
def test_pause_between_steps_is_in_the_gap_alone(case, slot, tmp_path):
    spec = planned_case(tmp_path, case)
    plain = figures(slot, spec)
    paused = figures(slot, with_fault(spec, "sleep_between_steps", seconds=PAUSE))

    def added(column: str) -> float:
        return float(paused[column]) - float(plain[column])

    allowed = TOLERANCE * PAUSE
    # The host has issued the update when it sleeps; the GPU still works on it for a while.
    covered = plain["update_seconds_median"]
    assert PAUSE - covered - allowed < added("step_gap_seconds_median") < PAUSE + allowed
    assert abs(added("data_seconds_median")) < allowed
    # It is in no other part of the step.
    for column in ("forward_seconds_median", "update_seconds_median"):
        # Passes and updates of the same length; an update on the host varies more than the pause.
        assert abs(added(column)) < max(allowed, TOLERANCE * plain[column])
    for column in ("launch_bound_forward_share", "launch_bound_update_share"):
        assert abs(seconds_in(paused, column) - seconds_in(plain, column)) < allowed


def test_gap_is_part_of_the_step(slot, tmp_path):
    row = figures(slot, planned_case(tmp_path, "eager"))
    parts = ("step_gap_seconds_median", "forward_seconds_median", "update_seconds_median")
    assert all(row[part] > 0 for part in parts)
    assert sum(row[part] for part in parts) < row["step_seconds_median"]
    share = row["step_gap_seconds_median"] / row["step_seconds_median"]
    assert row["step_gap_share"] == pytest.approx(share, rel=0.5)
