"""The batch-size search when trials fail, take too long or are forbidden, and several searches side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.analysis.batch_size import Answer, describe
from orchestrator.search.batch_size.search import BatchSize
from orchestrator.search.round_robin import Together
from tests.support.devices import Cpu, Device, make_trial, run_to_the_end


def picks(answer: Answer) -> tuple[int | None, ...]:
    """Largest, fastest, and where the plateau begins."""
    return tuple(
        size and size.micro_batch for size in (answer.largest, answer.fastest, answer.plateau)
    )


def test_accumulation_that_a_rule_forbids_is_a_row_and_no_trial() -> None:
    def make(micro_batch: int, accumulation: int) -> TrialSpec | TrialRecord:
        spec = make_trial(micro_batch, accumulation)
        if accumulation == 1:
            return spec
        return TrialRecord(
            spec=spec,
            outcome=Outcome.UNSUPPORTED,
            rule="lomo",
            reason="gradients cannot accumulate",
        )

    search = BatchSize(make, effective_batch=512)
    asked = run_to_the_end(search, Device())
    assert {accumulation for _, accumulation in asked} == {1}
    assert search.answer.accumulated is None
    assert {record.rule for record in search.skipped()} == {"lomo"}


@pytest.mark.parametrize(
    ("outcome", "trials", "unfinished"),
    [
        (Outcome.UNSUPPORTED, 1, "unsupported: no such kernel"),
        (Outcome.FAILED, 1, "failed: no such kernel"),
        (Outcome.SKIPPED, 1, "skipped: no such kernel"),
        (Outcome.OUT_OF_MEMORY, 3, ""),
        (Outcome.HOST_OUT_OF_MEMORY, 3, ""),
        (Outcome.CRASHED, 3, ""),
        (Outcome.TIMED_OUT, 3, ""),
    ],
)
def test_a_set_that_never_runs(outcome: Outcome, trials: int, unfinished: str) -> None:
    search = BatchSize(make_trial)
    asked = 0
    while (spec := search.ask()) is not None:
        asked += 1
        search.tell(TrialRecord(spec=spec, outcome=outcome, reason="no such kernel"))
    assert (asked, search.answer.unfinished, search.answer.largest) == (trials, unfinished, None)


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.OK, Outcome.TIMED_OUT}))
def test_whatever_ends_a_larger_size_bounds_it(outcome: Outcome) -> None:
    search, device = BatchSize(make_trial, exact=True), Device()
    while (spec := search.ask()) is not None:
        record = device.run(spec)
        search.tell(
            record if spec.micro_batch <= 100 else replace(record, outcome=outcome, measurements={})
        )
    assert picks(search.answer)[0] == 100


def test_what_takes_too_long_is_not_approached() -> None:
    search, device = BatchSize(make_trial, limited=False), Cpu()
    asked = []
    while (spec := search.ask()) is not None:
        asked.append(spec.micro_batch)
        late = TrialRecord(spec=spec, outcome=Outcome.TIMED_OUT, reason="300 s were over")
        search.tell(device.run(spec) if spec.micro_batch < 64 else late)
    assert asked[:3] == [4, 16, 64]
    assert max(asked[3:]) < 16
    assert picks(search.answer)[0] == 16
    assert "64: timed out" in describe(search.answer, "SIMULATED")


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNSUPPORTED, Outcome.TIMED_OUT])
def test_accumulation_that_fails_is_tried_once(outcome: Outcome) -> None:
    search, device = BatchSize(make_trial, effective_batch=512), Device()
    tried = 0
    while (spec := search.ask()) is not None:
        tried += spec.accumulation > 1
        broken = TrialRecord(spec=spec, outcome=outcome, reason="it cannot accumulate")
        search.tell(device.run(spec) if spec.accumulation == 1 else broken)
    assert tried == 1
    assert search.answer.accumulated is None


def test_several_sets_take_turns_and_keep_to_their_own() -> None:
    def make(number: int) -> Callable[[int, int], TrialSpec]:
        return lambda micro, accumulation: replace(make_trial(micro, accumulation), repeat=number)

    searches = [BatchSize(make(number)) for number in range(3)]
    together, device = Together(searches), Device()
    first = [together.ask() for _ in range(4)]
    assert [spec and spec.repeat for spec in first] == [0, 1, 2, None]
    for spec in first[:3]:
        assert spec is not None
        together.tell(device.run(spec))
    run_to_the_end(together, device)
    assert [picks(search.answer) for search in searches] == [(248, 248, 96)] * 3
    assert all(len(search.answer.sizes) == 4 for search in searches)
