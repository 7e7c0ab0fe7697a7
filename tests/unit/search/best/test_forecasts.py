"""The search begins with what is forecast to win, on several GPUs and on rows of unequal length."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from jobs.spec import Choice, DataSpec, MeasureSpec, SyntheticData, TrialSpec
from jobs.spec.model_and_data import RowLengthDistribution
from orchestrator.search.best.search import BestSearch
from orchestrator.search.model.effects.technique_priors import shipped_priors
from orchestrator.units import GIB
from tests.benchmarks.grids import grid_of, make_record, make_spec

WAYS = ("fsdp2_full", "ddp", "zero2", "zero3")


def spec(way: str, size: int = 4, **more: object) -> TrialSpec:
    choices = {"sharding": way, "micro_batch": size, "accumulation": 1, **more}
    return replace(make_spec(choices), world_size=2)


def unequal(grid: Iterable[TrialSpec]) -> list[TrialSpec]:
    """The trials of a grid, of five steps on rows of unequal length."""
    lengths = RowLengthDistribution(distribution="lognormal", mean=30.0)
    rows = SyntheticData(sequence_length=64, lengths=lengths)
    data, measure = DataSpec(synthetic=rows), MeasureSpec(steps=5)
    return [replace(own, data=data, measure=measure) for own in grid]


def second_of(
    specs: Sequence[TrialSpec],
    seconds_of: Callable[[TrialSpec], float],
    *,
    speed: float = 40.0,
    **options: Any,
) -> Mapping[str, Choice]:
    """The choices of the second trial, where forecasts arrive beside the first, the baseline."""
    seconds: dict[str, float] = {}
    baseline = specs[0].choices
    search = BestSearch(
        specs,
        baseline=baseline,
        predicted_seconds=seconds,
        priors=shipped_priors(),
        **{"budgets": [24 * GIB], **options},
    )
    first = search.ask()
    assert first is not None
    assert first.choices == baseline
    seconds.update({own.trial_id: seconds_of(own) for own in specs})
    search.tell(make_record(first, 20 * GIB, speed))
    second = search.ask()
    assert second is not None
    return second.choices


@pytest.mark.parametrize("fastest", WAYS[1:])
def test_search_goes_on_with_the_way_that_is_forecast_to_be_fastest(fastest):
    second = second_of(
        [spec(way) for way in WAYS], lambda own: 0.2 - 0.1 * (own.choices["sharding"] == fastest)
    )
    assert second["sharding"] == fastest


@pytest.mark.parametrize("ranks", [1, 2])
def test_forecasts_of_techniques_count_beside_what_is_recorded_of_others(ranks):
    grid = grid_of(loss=("plain", "chunked"), attention=("auto", "eager"), micro_batch=(4,))
    specs = [replace(own, world_size=ranks) for own in grid]
    # Unlike on recorded models, where eager attention is slow.
    second = second_of(specs, lambda own: 0.2 - 0.1 * (own.choices["attention"] == "eager"))
    assert second["attention"] == "eager"


def test_search_begins_with_the_fastest_by_forecast_of_each_budget():
    losses = ("plain", "chunked", "liger", "cce")
    specs = unequal(grid_of(loss=losses, attention=("auto", "eager")))
    speeds = {"plain": 40.0, "chunked": 80.0, "liger": 60.0, "cce": 50.0}
    sizes = {"plain": 30, "chunked": 50, "liger": 34, "cce": 20}
    seconds: dict[str, float] = {}
    nbytes: dict[str, float] = {}
    search = BestSearch(
        specs,
        budgets=[24 * GIB, 36 * GIB],
        baseline={"loss": "plain", "attention": "auto", "micro_batch": 4, "accumulation": 1},
        predicted_bytes=nbytes,
        predicted_seconds=seconds,
        priors=shipped_priors(),
    )
    asked = []
    for _ in range(3):
        spec = search.ask()
        assert spec is not None
        loss = str(spec.choices["loss"])
        asked.append(loss)
        for own in specs:
            seconds[own.trial_id] = 1 / speeds[str(own.choices["loss"])]
            nbytes[own.trial_id] = sizes[str(own.choices["loss"])] * float(GIB)
        search.tell(make_record(spec, sizes[loss] * GIB, speeds[loss]))
    # The first fits neither budget, nor both of the next two.
    assert asked == ["plain", "cce", "liger"]


def test_budget_without_a_pick_or_a_forecast_does_not_wait_for_all_forecasts():
    losses = ("plain", "chunked", "liger", "cce")
    offloads = ("none", "zero2_cpu_optimizer")
    specs = unequal(grid_of(loss=losses, offload=offloads, micro_batch=(4,)))
    on_gpu = [own for own in specs if own.choices["offload"] == "none"]
    speeds = {"plain": 40.0, "chunked": 80.0, "liger": 70.0, "cce": 60.0}
    search = BestSearch(
        specs,
        budgets=[12 * GIB, 24 * GIB],
        baseline=specs[0].choices,
        predicted_bytes={own.trial_id: (20.0 if own in on_gpu else 8.0) * GIB for own in specs},
        predicted_seconds={own.trial_id: 1 / speeds[str(own.choices["loss"])] for own in on_gpu},
        priors=shipped_priors(),
    )
    asked = []
    for _ in range(4):
        spec = search.ask()
        assert spec is not None
        asked.append(spec.choices["offload"])
        # The forecasts are wrong, so that each leaves a gain to those not measured.
        speed = 40.0 if spec.choices["loss"] == "plain" else 39.0
        search.tell(make_record(spec, (20 if spec in on_gpu else 8) * GIB, speed))
    assert asked[0] == "none"
    assert "zero2_cpu_optimizer" in asked


@pytest.mark.parametrize(
    ("compiled", "slot_seconds", "second"),
    [(0.9, 900.0, "none"), (0.1, 900.0, "inductor"), (0.1, 30.0, "none")],
)
def test_first_by_forecast_gains_most_per_second_and_ends_in_time(compiled, slot_seconds, second):
    def seconds_of(own):
        is_compiled, is_liger = own.choices["compile"] != "none", own.choices["loss"] == "liger"
        return (0.1 - 0.005 * is_liger) * (compiled if is_compiled else 1.0)

    specs = unequal(grid_of(loss=("plain", "liger"), compile=("none", "inductor")))
    found = second_of(specs, seconds_of, speed=10.0, slot_seconds=slot_seconds)
    assert found["compile"] == second


def test_largest_gain_in_all_budgets_comes_first():
    specs = unequal(grid_of(loss=("plain", "liger"), activations=("keep", "checkpoint")))

    def seconds_of(own):
        is_kept, is_liger = own.choices["activations"] == "keep", own.choices["loss"] == "liger"
        return 0.1 - 0.05 * is_liger - 0.01 * (is_liger and is_kept)

    sizes = {"keep": 60.0 * GIB, "checkpoint": 20.0 * GIB}
    nbytes = {own.trial_id: sizes[str(own.choices["activations"])] for own in specs}
    nbytes[specs[0].trial_id] = 20.0 * GIB
    budgets = (24 * GIB, 40 * GIB, 80 * GIB)
    options = {"predicted_bytes": nbytes, "budgets": budgets}
    found = second_of(specs, seconds_of, speed=10.0, **options)
    # Kept activations are faster, and fit one budget of three.
    assert (found["loss"], found["activations"]) == ("liger", "checkpoint")


def test_forecast_holds_for_twins_with_other_data_loaders():
    specs = unequal(grid_of(loss=("plain", "liger"), dataloader=("main_process", "workers_4")))
    named = [own for own in specs if own.choices["dataloader"] == "main_process"]
    seconds = {own.trial_id: 1.0 + own.micro_batch for own in named if own.micro_batch > 1}
    search = BestSearch(specs, baseline={}, predicted_seconds=seconds, priors=shipped_priors())
    search.tell(make_record(specs[0], 20 * GIB, 10.0))
    search.ask()
    forecast = search._state.forecast_log_speed
    for own, candidate in zip(forecast, search._state.candidates, strict=True):
        size = candidate.micro_batch
        assert own == (-math.log(1.0 + size) if size > 1 else -math.inf)
