"""Faults on a real GPU: each one classified row, the GPU clean afterwards, and the other trials unharmed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.isolation.slot import Slot
from jobs.node import gpu_sharing, nvml
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.support.faults import with_fault

UUIDS = nvml.visible_uuids()
RELEASE_SECONDS = 30.0
DRIVER_BYTES = 2**20
"""The driver's own book-keeping grows by some pages when a process is killed."""

CONFIG = """\
model:
  task: sequence-classification
  architecture: bert
  config: {{hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, intermediate_size: 4096}}
data:
  synthetic: {{sequence_length: 512, samples: 1024}}
trials:
  - {{precision: bf16, micro_batch: {micro_batch}}}
measure:
  warmup_steps: 1
  steps: 3
  relative_error: 0
"""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not UUIDS, reason="needs a CUDA device"),
]

Faulty = Callable[[TrialSpec], TrialSpec]


def planned(folder: Path, *, micro_batch: int) -> TrialSpec:
    """BERT-large in bf16, as a sweep would plan it."""
    path = folder / f"batch_{micro_batch}.yaml"
    path.write_text(CONFIG.format(micro_batch=micro_batch))
    (spec,) = plan(load_config(path)).trials
    return spec


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    """One preloaded parent for the whole file."""
    with Slot(cpus=os.cpu_count() or 1) as one:
        one.start()
        yield one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this file's sweeps are written."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def ok_before(slot: Slot, folder: Path) -> TrialRecord:
    """A good trial, run before every fault."""
    return slot.run(planned(folder, micro_batch=4), timeout_seconds=300.0)


def settled_used_bytes(expected: int) -> int:
    """Memory in use on the GPU, once it has come back to ``expected`` or has had time enough to."""
    end = time.monotonic() + RELEASE_SECONDS
    while (
        abs((used := nvml.used_bytes(UUIDS[0])) - expected) > DRIVER_BYTES
        and time.monotonic() < end
    ):
        time.sleep(0.1)
    return used


def resting_bytes() -> int:
    """Memory in use on the GPU between trials: where it stays, once the next one's process has its context."""
    end, used = time.monotonic() + RELEASE_SECONDS, -1
    while (found := nvml.used_bytes(UUIDS[0])) != used and time.monotonic() < end:
        used = found
        time.sleep(1.0)
    return used


def test_the_slot_forks_and_leaves_the_gpu_alone(slot: Slot, ok_before: TrialRecord) -> None:
    assert slot.hello["unclean"] == ""
    assert ok_before.outcome is Outcome.OK, f"{ok_before.reason}\n{ok_before.log}"
    assert ok_before.isolation == "fork"
    assert ok_before.measurements["gpu_foreign_processes"] == 0


def test_a_batch_that_does_not_fit_is_out_of_memory(
    slot: Slot, ok_before: TrialRecord, folder: Path
) -> None:
    before = resting_bytes()
    record = slot.run(planned(folder, micro_batch=1024), timeout_seconds=300.0)
    assert record.outcome is Outcome.OUT_OF_MEMORY, f"{record.reason}\n{record.log}"
    assert record.phase == "first_step"
    assert record.measurements["oom_requested_bytes"] > 2**20
    assert record.measurements["allocator_ooms"] >= 1
    assert abs(settled_used_bytes(before) - before) <= DRIVER_BYTES
    assert_unharmed(slot, ok_before)


def missing_package(spec: TrialSpec) -> TrialSpec:
    """The same trial, needing a package that nobody has."""
    return replace(spec, recipe=replace(spec.recipe, requires=("package:no_such_package",)))


@pytest.mark.parametrize(
    ("faulty", "outcome", "phase", "reason"),
    [
        pytest.param(
            lambda s: with_fault(s, "hang"),
            Outcome.TIMED_OUT,
            "model",
            "no result after 20 s",
            id="hang",
        ),
        pytest.param(
            lambda s: with_fault(s, "kill"), Outcome.CRASHED, "model", "SIGKILL", id="kill"
        ),
        pytest.param(
            lambda s: with_fault(s, "segfault"), Outcome.CRASHED, "model", "SIGSEGV", id="segfault"
        ),
        pytest.param(
            lambda s: with_fault(s, "raise_error"),
            Outcome.FAILED,
            "model",
            "ValueError",
            id="raise",
        ),
        pytest.param(
            missing_package,
            Outcome.UNSUPPORTED,
            "requirements",
            "no_such_package",
            id="missing_package",
        ),
    ],
)
def test_a_fault_is_one_classified_row(
    faulty: Faulty,
    outcome: Outcome,
    phase: str,
    reason: str,
    slot: Slot,
    ok_before: TrialRecord,
    folder: Path,
) -> None:
    # After what is suspicious the next trial's process is not made yet.
    unsupported = outcome is Outcome.UNSUPPORTED
    expected = resting_bytes() if unsupported else ok_before.measurements["gpu_used_before_bytes"]
    record = slot.run(faulty(planned(folder, micro_batch=4)), timeout_seconds=20.0)
    assert (record.outcome, record.phase) == (outcome, phase)
    assert reason in record.reason
    assert abs(settled_used_bytes(expected) - expected) <= DRIVER_BYTES
    assert_unharmed(slot, ok_before)


VISITOR = """\
import torch
print("here", flush=True)
input()
held = torch.ones(2**28, device="cuda")
print("on the GPU", flush=True)
input()
"""


def test_who_comes_during_a_trial_and_leaves_is_told_of(
    slot: Slot, ok_before: TrialRecord, folder: Path
) -> None:
    spec = planned(folder, micro_batch=4)
    spec = replace(spec, measure=replace(spec.measure, steps=100))
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(
            [sys.executable, "-c", VISITOR], stdin=pipe, stdout=pipe, text=True
        ) as visitor,
        ThreadPoolExecutor() as pool,
    ):
        assert visitor.stdin is not None
        assert visitor.stdout is not None
        visitor.stdout.readline()
        running = pool.submit(slot.run, spec, 300.0)
        trains = (
            ok_before.measurements["gpu_used_before_bytes"]
            + ok_before.measurements["peak_allocated_bytes"]
        )
        while nvml.used_bytes(UUIDS[0]) < trains and not running.done():
            time.sleep(0.1)
        visitor.stdin.write("\n")
        visitor.stdin.flush()
        visitor.stdout.readline()
        visitor.kill()
        record = running.result()
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.log}"
    assert record.measurements["gpu_foreign_processes"] == 1
    assert gpu_sharing.is_shared(record.measurements["warnings"])
    assert (
        record.measurements["peak_allocated_bytes"]
        == ok_before.measurements["peak_allocated_bytes"]
    )
    after = slot.run(ok_before.spec, timeout_seconds=300.0)
    assert not gpu_sharing.is_shared(after.measurements["warnings"])


def assert_unharmed(slot: Slot, before: TrialRecord) -> None:
    """The good trial, run again, is what it was before the fault, from the same parent."""
    after = slot.run(before.spec, timeout_seconds=300.0)
    assert after.outcome is Outcome.OK, f"{after.reason}\n{after.log}"
    for column in ("slot_pid", "peak_allocated_bytes"):
        assert after.measurements[column] == before.measurements[column], column
    found, left = (record.measurements["gpu_used_before_bytes"] for record in (before, after))
    assert abs(found - left) <= DRIVER_BYTES
    assert after.measurements["gpu_foreign_processes"] == 0
