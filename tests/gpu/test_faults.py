"""Faults on a real GPU: each has its record, the GPU is clean afterwards, other trials unharmed."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.flags import SHARED, has_any
from jobs.isolation.slot import Slot
from jobs.node import nvml
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from tests.gpu.shared import BERT_LARGE, UUIDS, gpu_marks, planned
from tests.support.faults import with_fault

RELEASE_SECONDS = 30.0
DRIVER_BYTES = 2**20
"""The driver's own memory grows by some pages when a process is killed."""

pytestmark = gpu_marks(timeout_seconds=600)


def bert(folder: Path, *, micro_batch: int) -> TrialSpec:
    choices = {"precision": "bf16", "micro_batch": micro_batch}
    return planned(folder, BERT_LARGE, choices, (512, 1024), warmup_steps=1, steps=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def ok_before(slot, folder) -> TrialRecord:
    """A good trial, run before every fault."""
    return slot.run(bert(folder, micro_batch=4), timeout_seconds=300.0)


def settled_used_bytes(expected: int) -> int:
    """Memory in use on the GPU, once it is back at ``expected`` or has had enough time to be."""
    end = time.monotonic() + RELEASE_SECONDS
    used = nvml.used_bytes(UUIDS[0])
    while abs(used - expected) > DRIVER_BYTES and time.monotonic() < end:
        time.sleep(0.1)
        used = nvml.used_bytes(UUIDS[0])
    return used


def resting_bytes() -> int:
    """Memory in use on the GPU between trials, once the next trial's process has its context."""
    end = time.monotonic() + RELEASE_SECONDS
    before, used = -1, nvml.used_bytes(UUIDS[0])
    while used != before and time.monotonic() < end:
        time.sleep(1.0)
        before, used = used, nvml.used_bytes(UUIDS[0])
    return used


def test_slot_forks_and_leaves_the_gpu_alone(slot, ok_before):
    assert slot.hello["unclean"] == ""
    assert ok_before.outcome is Outcome.OK, f"{ok_before.reason}\n{ok_before.provenance.log}"
    assert ok_before.provenance.isolation == "fork"
    assert ok_before.measurements["gpu_foreign_processes"] == 0


def test_batch_that_does_not_fit_is_out_of_memory(slot, ok_before, folder):
    before = resting_bytes()
    record = slot.run(bert(folder, micro_batch=1024), timeout_seconds=300.0)
    assert record.outcome is Outcome.OUT_OF_MEMORY, f"{record.reason}\n{record.provenance.log}"
    assert record.phase == "first_step"
    assert record.measurements["oom_requested_bytes"] > 2**20
    assert abs(settled_used_bytes(before) - before) <= DRIVER_BYTES
    assert_unharmed(slot, ok_before)


def missing_package(spec: TrialSpec) -> TrialSpec:
    return replace(spec, settings=replace(spec.settings, requires=("package:no_such_package",)))


@pytest.mark.parametrize(
    ("faulty", "outcome", "phase", "reason"),
    [
        ("hang", Outcome.TIMED_OUT, "model", "no result after 20 s"),
        ("kill", Outcome.CRASHED, "model", "SIGKILL"),
        ("segfault", Outcome.CRASHED, "model", "SIGSEGV"),
        ("raise_error", Outcome.FAILED, "model", "ValueError"),
        (missing_package, Outcome.UNSUPPORTED, "requirements", "no_such_package"),
    ],
)
def test_fault_has_one_classified_record(faulty, outcome, phase, reason, slot, ok_before, folder):
    unsupported = outcome is Outcome.UNSUPPORTED
    expected = resting_bytes() if unsupported else ok_before.measurements["gpu_used_before_bytes"]
    spec = bert(folder, micro_batch=4)
    spec = with_fault(spec, faulty) if isinstance(faulty, str) else faulty(spec)
    record = slot.run(spec, timeout_seconds=20.0)
    assert (record.outcome, record.phase) == (outcome, phase)
    assert reason in record.reason
    assert abs(settled_used_bytes(expected) - expected) <= DRIVER_BYTES
    assert_unharmed(slot, ok_before)


OTHER_PROCESS = """\
import torch
print("here", flush=True)
input()
held = torch.ones(2**28, device="cuda")
print("on the GPU", flush=True)
input()
"""


def test_process_that_comes_and_leaves_during_a_trial_is_a_flag(slot, ok_before, folder):
    spec = bert(folder, micro_batch=4)
    spec = replace(spec, measure=replace(spec.measure, steps=100))
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS], stdin=pipe, stdout=pipe, text=True
        ) as other,
        ThreadPoolExecutor() as pool,
    ):
        other.stdout.readline()
        running = pool.submit(slot.run, spec, 300.0)
        trains = (
            ok_before.measurements["gpu_used_before_bytes"]
            + ok_before.measurements["peak_allocated_bytes"]
        )
        while nvml.used_bytes(UUIDS[0]) < trains and not running.done():
            time.sleep(0.1)
        other.stdin.write("\n")
        other.stdin.flush()
        other.stdout.readline()
        other.kill()
        record = running.result()
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.provenance.log}"
    assert record.measurements["gpu_foreign_processes"] == 1
    assert has_any(record.flags, SHARED)
    assert (
        record.measurements["peak_allocated_bytes"]
        == ok_before.measurements["peak_allocated_bytes"]
    )
    after = slot.run(ok_before.spec, timeout_seconds=300.0)
    assert not has_any(after.flags, SHARED)


def assert_unharmed(slot: Slot, before: TrialRecord) -> None:
    """The good trial, run again, is what it was before the fault, from the same parent."""
    after = slot.run(before.spec, timeout_seconds=300.0)
    assert after.outcome is Outcome.OK, f"{after.reason}\n{after.provenance.log}"
    assert after.provenance.slot_pid == before.provenance.slot_pid
    peaks = [record.measurements["peak_allocated_bytes"] for record in (before, after)]
    assert peaks[0] == peaks[1]
    used = [record.measurements["gpu_used_before_bytes"] for record in (before, after)]
    assert abs(used[0] - used[1]) <= DRIVER_BYTES
    assert after.measurements["gpu_foreign_processes"] == 0
