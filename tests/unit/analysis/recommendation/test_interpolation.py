"""Candidates between two measured micro-batches, and effective batches near the one asked for."""

from dataclasses import replace

import pytest

from jobs.flags import Flag, FlagKind
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.recommendation import Constraints, Rankings, recommend
from orchestrator.analysis.recommendation.interpolation import candidates_between
from tests.support.configurations import make_configuration
from tests.support.recorded_runs import recorded

BERT = "2026-11-21-bert_large-h200"


def test_recommend_offers_no_batch_that_gains_little():
    sizes = Rankings([make_configuration(10, 100.0, micro_batch=size) for size in (4, 8)])
    assert recommend(sizes, Constraints(effective_batch=8)).nearby == ()
    assert recommend(sizes, Constraints()).nearby == ()


def test_recommend_without_any_way_to_the_batch_names_the_nearest():
    single = Rankings([make_configuration(10, 100.0, micro_batch=4)])
    answer = recommend(single, Constraints(effective_batch=5))
    assert answer.best is None
    assert [(own.effective_batch, own.ratio) for own in answer.nearby] == [(4, None)]
    # A batch is near if the one asked for is at most half as large again.
    near = [recommend(single, Constraints(effective_batch=size)).nearby for size in (6, 7)]
    assert [[own.effective_batch for own in found] for found in near] == [[4], []]


def test_candidates_between_need_two_neighbours_that_train_correctly():
    smaller = make_configuration(10, 100.0, micro_batch=4)
    larger = make_configuration(20, 120.0, micro_batch=8)
    (candidate,) = candidates_between([smaller, larger], 6)
    assert (candidate.micro_batch, candidate.accumulation) == (6, 1)
    # Half-way between the peaks, with the margin; and the time of the larger batch for fewer
    # samples, which is above nine tenths of the speed half-way.
    assert candidate.memory_bytes == 17
    assert candidate.configuration.samples_per_second == pytest.approx(0.9 * 6 / (8 / 150))
    flagged = replace(larger, flags=(Flag(FlagKind.LOSS_NOT_FINITE, 1.0),))
    assert not list(candidates_between([smaller, flagged], 6))
    assert not list(candidates_between([smaller], 6))


@pytest.mark.parametrize(
    "run", ["2026-11-20-bert_large-7xh200-part", BERT, "2026-11-23-bert_large-2xh200"]
)
def test_interpolated_figures_are_bounds_on_recorded_sizes(run):
    by_techniques: dict[tuple[object, ...], dict[int, Configuration]] = {}
    for own in recorded(run).configurations:
        by_techniques.setdefault(own.techniques, {})[own.micro_batch] = own
    checked = 0
    fast_enough = 0
    for sizes in by_techniques.values():
        ordered = sorted(sizes)
        for begin, middle, end in zip(ordered, ordered[1:], ordered[2:], strict=False):
            measured = sizes[middle]
            (bound,) = candidates_between([sizes[begin], sizes[end]], middle)
            checked += 1
            assert measured.memory_bytes <= bound.memory_bytes
            speed = bound.configuration.samples_per_second
            fast_enough += measured.samples_per_second >= speed
    assert checked > 100
    assert fast_enough / checked > 0.95


def test_candidates_between_stay_below_an_accumulation_that_fails():
    known = {"parameters_trainable": 1, "parameter_dtypes": "float32"}
    smaller = make_configuration(10, 100.0, micro_batch=4, **known)
    larger = make_configuration(20, 120.0, micro_batch=8, **known)
    broken = make_configuration(20, 120.0, micro_batch=4, accumulation=4, **known)
    broken = replace(broken, flags=(Flag(FlagKind.LOSS_MISMATCH, 1.7),))
    listed = [smaller, larger, broken]
    (candidate,) = candidates_between(listed, 12)
    assert candidate.micro_batch == 6
    assert candidate.suspicion is not None
    assert not list(candidates_between(listed, 30))


@pytest.mark.parametrize("effective_batch", [2**62, 2**61 - 1])
def test_candidates_of_a_huge_batch_come_at_once(effective_batch):
    smaller = make_configuration(10, 100.0, micro_batch=4)
    larger = make_configuration(20, 120.0, micro_batch=2**31)
    found = [own.micro_batch for own in candidates_between([smaller, larger], effective_batch)]
    assert all(effective_batch % micro_batch == 0 for micro_batch in found)
