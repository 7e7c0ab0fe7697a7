"""Samples of unequal length are never ranked together; the longest that fits is named."""

from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.dataset import Dataset, dataset_of_records
from orchestrator.analysis.recommendation import Constraints, recommend
from orchestrator.analysis.technique_effects import technique_effects
from orchestrator.reporting.sections.longest_context import lines
from orchestrator.storage.run_metadata import RunMetadata
from tests.support.records import make_record, with_losses

GIB_IN_MIB = 1024


def _record(length: int, gib: float, speed: float, **more: Any) -> TrialRecord:
    """A trial at a sequence length; the baseline's is 1024."""
    recipe = dict(more.pop("recipe", {}))
    if length != 1024:
        recipe["sequence_length"] = length
    measurements = {"real_tokens_per_second": speed * length} | more.pop("measurements", {})
    return make_record(
        memory_mib=gib * GIB_IN_MIB,
        speed=speed,
        recipe=recipe,
        sequence_length=length,
        measurements=measurements,
        **more,
    )


def _dataset(*records: TrialRecord) -> Dataset:
    axes = ("sequence_length", "micro_batch", "activations", "optimizer")
    run = RunMetadata(baseline={"sequence_length": 1024}, axes=axes)
    return dataset_of_records(records, run)


@pytest.fixture
def dataset() -> Dataset:
    """Three lengths, with and without checkpointing, and another optimizer at two of them."""
    return _dataset(
        _record(1024, 10, 40.0, micro_batch=2),
        _record(4096, 20, 9.0),
        _record(16384, 70, 2.0),
        _record(1024, 8, 30.0, activations="checkpoint"),
        _record(16384, 22, 1.5, activations="checkpoint"),
        _record(16384, 23, 1.6, activations="checkpoint", micro_batch=8),
        _record(65536, 60, 0.3, activations="checkpoint"),
        _record(1024, 9, 41.0, optimizer="sgd", recipe={"optimizer": "sgd"}),
        _record(4096, 18, 9.5, optimizer="sgd", recipe={"optimizer": "sgd"}),
    )


def test_longest_within_a_budget_is_the_longest_of_each_technique_set(dataset):
    checkpoint, keep = dataset.main.longest(24 * 2**30)
    assert (checkpoint.tokens, checkpoint.configuration.choices["micro_batch"]) == (16384, 8)
    assert checkpoint.tokens_per_second == pytest.approx(1.6 * 16384)
    assert checkpoint.next_tokens == 65536
    assert (keep.tokens, keep.next_tokens, keep.check) == (4096, 16384, None)


def test_longest_names_a_length_that_ran_out_of_memory():
    dataset = _dataset(
        _record(1024, 10, 40.0), _record(4096, 0, 1.0, outcome=Outcome.OUT_OF_MEMORY)
    )
    [context] = dataset.main.longest()
    assert (context.tokens, context.next_tokens) == (1024, 4096)


def test_longest_is_no_longer_than_the_longest_row_of_the_data():
    dataset = _dataset(
        _record(1024, 10, 40.0, measurements={"longest_row_tokens": 1024}),
        _record(4096, 12, 38.0, measurements={"longest_row_tokens": 1500}),
        _record(65536, 12, 37.0, measurements={"longest_row_tokens": 1500}),
    )
    [context] = dataset.main.longest()
    assert (context.tokens, context.configuration.choices["sequence_length"]) == (1500, 4096)
    [shorter] = dataset.main.longest(11 * 2**30)
    assert (shorter.tokens, shorter.next_tokens) == (1024, 1500)


def test_longest_with_all_recipes_has_other_optimizers(dataset):
    contexts = dataset.main.longest(24 * 2**30, all_recipes=True)
    optimizers = [context.configuration.choices["optimizer"] for context in contexts]
    assert optimizers.index("sgd") == 1
    assert len(optimizers) == 3


def test_lines_of_longest_say_that_nothing_was_verified(dataset):
    budget = 24 * 2**30
    text = "\n".join(lines(dataset, dataset.main.longest(budget), budget))
    assert "16,384 tokens: batch 8×1" in text
    assert "26,214 tokens/s" in text
    assert "not verified under a memory cap of 24 GiB" in text
    assert "the next length that was tried, 65,536 tokens, does not fit" in text


def test_other_lengths_are_other_workloads_whatever_the_recipe(dataset):
    results = dataset.main
    answer = recommend(results.rankings, Constraints(all_recipes=True))
    offered = [answer.best, *answer.runners_up, *(cost.candidate for cost in answer.costs)]
    front = [*results.front_across_recipes, *(candidate.configuration for candidate in offered)]
    assert {own.choices["sequence_length"] for own in front} == {1024}
    assert len(results.workload_fronts) == 4
    assert "sequence_length" not in {
        own.axis for own in technique_effects(results.configurations, results.baseline)
    }


def test_recommend_at_a_longer_baseline_never_offers_a_shorter_one():
    records = [
        _record(1024, 10, 40.0),
        _record(4096, 20, 9.0),
        _record(4096, 15, 8.0, micro_batch=2),
    ]
    run = RunMetadata(baseline={"sequence_length": 4096}, axes=("sequence_length",))
    results = dataset_of_records(records, run).main
    answer = recommend(results.rankings, Constraints(all_recipes=True))
    assert answer.best.configuration.samples_per_second == 9.0
    assert all(pick.other is None for pick in results.budget_picks)


def test_equal_losses_do_not_make_lengths_one_workload():
    records = [_record(1024, 10, 40.0), _record(4096, 20, 9.0)]
    equal = [with_losses(record, [5.0] * 200) for record in records]
    assert not _dataset(*equal).main.same_losses
