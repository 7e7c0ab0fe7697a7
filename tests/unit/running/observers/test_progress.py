"""What is printed while a sweep runs."""

import io
from dataclasses import replace
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import FollowUp, MemoryCap, Purpose, TrialSpec
from orchestrator.running.observers.progress import Progress
from tests.support.clock import Clock
from tests.support.records import make_record

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


def test_progress_prints_a_line_per_trial():
    printed = Printed(24)
    ok, oom = (
        record(speed=177.3),
        record(128, outcome=Outcome.OUT_OF_MEMORY, reason="CUDA out of memory"),
    )
    printed.progress.ended(ok, measured=True)
    printed.progress.ended(oom, measured=True)
    assert printed.lines() == [
        "[ 1/24]  ok         batch 64 · bf16 · adafactor  177 samples/s  107 MiB  (3.0 s)"
        f"  {ok.trial_id}",
        f"[ 2/24]  OOM        batch 128 · bf16 · adafactor  CUDA out of memory  {oom.trial_id}",
    ]


def test_progress_counts_kept_trials_without_a_line():
    printed = Printed(2)
    printed.progress.ended(record(speed=5.0), measured=False)
    printed.progress.started(record().spec)
    assert printed.lines() == []
    printed.progress.ended(record(4, speed=2.0), measured=True)
    assert printed.lines()[0].startswith("[2/2]  ok")
    printed.progress.closed()
    assert printed.lines()[1] == (
        "-- 2 of 2 done (2 ok) | fastest 5.00 samples/s: batch 64 · bf16 · adafactor"
        " | slot time 3.0 s"
    )


def test_progress_predicts_the_time_left():
    printed = Printed(4)
    printed.clock.now += 10.0
    printed.progress.count(record(), measured=True)
    assert printed.progress.status().endswith(" | about 30.0 s left")


def test_progress_prints_its_status_every_ten_trials():
    printed = Printed(30)
    for _ in range(20):
        printed.progress.ended(record(), measured=True)
    statuses = [line for line in printed.lines() if line.startswith("-- ")]
    assert [line.partition(" done")[0] for line in statuses] == ["-- 10 of 30", "-- 20 of 30"]


def test_progress_without_a_plan_only_counts():
    printed = Printed(None)
    printed.progress.ended(record(), measured=True)
    printed.progress.closed()
    assert printed.lines()[0].startswith("[1]  ok")
    assert printed.lines()[1].startswith("-- 1 done (1 ok)")


def follow_up(spec: TrialSpec, purpose: Purpose, **given: Any) -> TrialSpec:
    return replace(spec, follow_up=FollowUp(follows_trial=spec.trial_id, purpose=purpose, **given))


def test_progress_says_what_a_follow_up_is_for():
    printed = Printed(1)
    ended = record()
    capped = replace(
        ended.spec,
        measure=replace(ended.spec.measure, memory_cap=MemoryCap(device_bytes=16 * 2**30)),
    )
    for spec in (
        follow_up(ended.spec, Purpose.TIE_BREAK, round=1),
        follow_up(capped, Purpose.CAP_CHECK),
        follow_up(ended.spec, Purpose.PROFILE),
    ):
        printed.progress.ended(replace(ended, spec=spec), measured=True)
    words = [line.partition("]")[0] for line in printed.lines()]
    assert words == ["[round 2", "[cap 16 GiB", "[profile"]
    assert printed.progress.status().startswith("-- 0 of 1 done")


def test_progress_names_the_repeat_and_the_gpu_model():
    printed = Printed(2)
    ended = record(repeat=1)
    on_model = replace(ended, spec=replace(ended.spec, gpu_model="NVIDIA H200"))
    printed.progress.ended(on_model, measured=True)
    assert "batch 64 · bf16 · adafactor · repeat 1 · on NVIDIA H200  " in printed.lines()[0]


@pytest.mark.parametrize("outcome", [own for own in Outcome if own is not Outcome.OK])
def test_progress_prints_the_reason_of_every_other_outcome(outcome):
    printed = Printed(1)
    printed.progress.ended(record(outcome=outcome, reason="why " * 100), measured=True)
    (line,) = printed.lines()
    assert "  why why" in line
    assert len(line) < 250
