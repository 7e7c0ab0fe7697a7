"""The batch-size search when trials fail, take too long or are forbidden."""

import pytest

from jobs.record import Outcome, TrialRecord, unsupported
from jobs.spec import TrialSpec
from orchestrator.search.batch_size.batch_size_search import BatchSizeGoal, BatchSizeSearch
from tests.support.devices import Cpu, Device, asked_by, make_trial, run_to_the_end


def failed(spec: TrialSpec, outcome: Outcome) -> TrialRecord:
    """A trial that ended otherwise than ok."""
    return TrialRecord(spec=spec, outcome=outcome, reason="no such kernel")


def test_forbidden_accumulation_is_skipped_and_not_tried():
    def make(micro_batch: int, accumulation: int) -> TrialSpec | TrialRecord:
        spec = make_trial(micro_batch, accumulation)
        if accumulation == 1:
            return spec
        return unsupported(spec, "lomo", "gradients cannot accumulate")

    search = BatchSizeSearch(make, BatchSizeGoal(effective_batch=512))
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
def test_search_of_a_set_that_never_runs_ends_soon(outcome, trials, unfinished):
    search = BatchSizeSearch(make_trial)
    asked = asked_by(search, lambda trial: failed(trial, outcome))
    answer = search.answer
    assert (len(asked), answer.unfinished, answer.largest) == (trials, unfinished, None)


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.OK, Outcome.TIMED_OUT}))
def test_size_that_fails_for_any_reason_bounds_the_largest(outcome):
    search, device = BatchSizeSearch(make_trial, BatchSizeGoal(exact=True)), Device()

    def run(trial: TrialSpec) -> TrialRecord:
        return device.run(trial) if trial.micro_batch <= 100 else failed(trial, outcome)

    asked_by(search, run)
    assert search.answer.largest.micro_batch == 100


def test_size_that_timed_out_is_not_approached():
    search, device = BatchSizeSearch(make_trial, limited=False), Cpu()
    asked = []
    while (trial := search.ask()) is not None:
        asked.append(trial.micro_batch)
        is_late = trial.micro_batch >= 64
        search.tell(failed(trial, Outcome.TIMED_OUT) if is_late else device.run(trial))
    assert asked[:3] == [4, 16, 64]
    assert max(asked[3:]) < 16
    assert search.answer.largest.micro_batch == 16


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNSUPPORTED, Outcome.TIMED_OUT])
def test_accumulation_that_fails_is_tried_once(outcome):
    search, device = BatchSizeSearch(make_trial, BatchSizeGoal(effective_batch=512)), Device()

    def run(trial: TrialSpec) -> TrialRecord:
        return device.run(trial) if trial.accumulation == 1 else failed(trial, outcome)

    assert sum(trial.accumulation > 1 for trial in asked_by(search, run)) == 1
    assert search.answer.accumulated is None
