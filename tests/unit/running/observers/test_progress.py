"""What is printed while a sweep runs."""

import io
from dataclasses import replace
from typing import Any

from jobs.record import Outcome, TrialRecord
from jobs.spec import MemoryCap, Purpose
from orchestrator.running.observers.progress import Progress
from tests.support.clock import Clock
from tests.support.golden import assert_golden, without_ids
from tests.support.records import follow_up_of, make_record

AXES = ("micro_batch", "precision", "optimizer")


class Printed:
    def __init__(self, planned: int | None) -> None:
        self._stream = io.StringIO()
        self.clock = Clock()
        self.progress = Progress(planned, AXES, stream=self._stream, clock=self.clock)

    def lines(self) -> list[str]:
        return self._stream.getvalue().splitlines()


def record(micro_batch: int = 64, **given: Any) -> TrialRecord:
    choices = {"precision": "bf16", "optimizer": "adafactor"}
    return make_record(micro_batch=micro_batch, memory_mib=107, gpu=False, **choices, **given)


def test_progress_of_a_sweep_is_the_recorded_text():
    printed = Printed(24)
    ok, other_gpu = record(speed=177.3), record(repeat=1)
    on_model = replace(other_gpu, spec=replace(other_gpu.spec, gpu_model="NVIDIA H200"))
    printed.progress.started(ok.spec)
    for ended in (ok, on_model):
        printed.progress.ended(ended, measured=True)
    printed.progress.ended(record(4, speed=200.0), measured=False)  # kept: counted without a line
    for size, outcome in enumerate(Outcome, 100):
        if outcome is not Outcome.OK:
            failed = record(size, outcome=outcome, reason="why " * 100)
            printed.progress.ended(failed, measured=True)
    cap = {"memory_cap": MemoryCap(device_bytes=16 * 2**30)}
    for follow_up in (
        follow_up_of(ok, Purpose.TIE_BREAK),
        follow_up_of(ok, Purpose.CAP_CHECK, cap),
        follow_up_of(ok, Purpose.PROFILE),
    ):
        printed.progress.ended(follow_up, measured=True)
    printed.progress.message("a node joined")
    printed.clock.now += 10.0
    printed.progress.closed()
    assert max(map(len, printed.lines())) < 250
    assert_golden("progress.txt", without_ids("\n".join(printed.lines())))


def test_progress_now_names_what_runs_for_how_long_and_what_is_left():
    printed = Printed(3)
    first, second = record(), record(32)
    printed.progress.started(first.spec)
    printed.clock.now += 10.0
    printed.progress.ended(first, measured=True)
    printed.progress.started(second.spec)
    printed.progress.started(follow_up_of(first, Purpose.PROFILE).spec)
    printed.clock.now += 2.0
    assert printed.progress.now() == (
        "1/3 done | batch 32 · bf16 · adafactor: 2.0 s"
        " | profile, batch 64 · bf16 · adafactor: 2.0 s | about 24.0 s left"
    )
    printed.progress.ended(second, measured=True)
    assert "batch 32" not in printed.progress.now()


def test_progress_prints_its_status_every_ten_trials():
    printed = Printed(30)
    for _ in range(20):
        printed.progress.ended(record(), measured=True)
    statuses = [line for line in printed.lines() if line.startswith("-- ")]
    assert [line.partition(" done")[0] for line in statuses] == ["-- 10 of 30", "-- 20 of 30"]


def test_progress_predicts_the_time_left():
    printed = Printed(4)
    printed.clock.now += 10.0
    printed.progress.count(record(), measured=True)
    assert printed.progress.status().endswith(" | about 30.0 s left")


def test_progress_without_a_plan_only_counts():
    printed = Printed(None)
    printed.progress.ended(record(), measured=True)
    printed.progress.closed()
    assert printed.lines()[0].startswith("[1]  ok")
    assert printed.lines()[1].startswith("-- 1 done (1 ok)")
