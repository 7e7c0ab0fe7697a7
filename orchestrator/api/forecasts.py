"""Forecast without a GPU: what ``tune`` would find, and what sharing between GPUs would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jobs.techniques.axes.sharding import SHARDING
from orchestrator.export.source_trial import source_trial
from orchestrator.planning.plan import trial_spec
from orchestrator.planning.settings import SweepConfig
from orchestrator.units import memory, number, size_bytes

if TYPE_CHECKING:
    from jobs.spec import TrialSpec
    from orchestrator.analysis.dataset import Dataset
    from orchestrator.analysis.recommendation import Offer
    from orchestrator.prediction.estimator import Watch
    from orchestrator.prediction.gpus import Gpu
    from orchestrator.prediction.prediction import Prediction
    from orchestrator.prediction.time.step_time import StepTime
    from orchestrator.prediction.tune.traced_sets import TracedCandidate
    from orchestrator.prediction.tune.tune_forecast import Across
    from orchestrator.storage.prices import Price


@dataclass(frozen=True, kw_only=True, slots=True)
class CardForecast:
    """The configurations for a card and a memory, the fastest first."""

    card: str
    memory_bytes: int
    ranked: Sequence[TracedCandidate]
    others: Sequence[TracedCandidate]
    """Those that train differently from the user's arguments, as ``tune`` offers them in its second
    result."""
    per_hour: float | None
    """What the card costs; None if that is not known."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class TuneForecast:
    config: SweepConfig
    answers: tuple[CardForecast, ...]
    considered: int
    """Configurations of the space."""
    sets: int
    """Sets of techniques with a forecast of their own."""
    left_out: int

    def to_json(self) -> dict[str, Any]:
        from orchestrator.reporting.verbs.forecast_text import plain

        return plain(self)

    def __repr__(self) -> str:
        from orchestrator.reporting.verbs.forecast_text import text

        return text(self)


def tune_forecast(
    config: SweepConfig,
    gpu: str | None = None,
    memory: Sequence[str] = (),
    prices: Mapping[str, Price] = MappingProxyType({}),
    watch: Watch | None = None,
    across: Across = map,
) -> TuneForecast:
    """For each memory on ``gpu`` (default: the H200), the configurations of ``tune``'s space by
    forecast speed. Without ``memory``, for the card's own; with ``prices``, for each priced card.
    ``across``: as ``forecast_space`` takes it.

    Raises ValueError if the card has no constants.
    """
    from orchestrator.planning.tune_space.space import Goal, tune_space
    from orchestrator.prediction.estimator import quiet_libraries, unwatched
    from orchestrator.prediction.gpus import load_gpu
    from orchestrator.prediction.libraries import without_gpus
    from orchestrator.prediction.tune.tune_forecast import forecast_space

    goal = Goal(recipe="usual")
    space = tune_space(config, goal, has_gpu=True, is_missing=lambda _: False)
    named = [gpu] if gpu else [name for name in prices if not name[0].isdigit()] or ["h200"]
    cards = [load_gpu(name) for name in named]
    with without_gpus(), quiet_libraries():
        asked = [(card, size) for card in cards for size in _sizes(card, memory)]
        found = forecast_space(space.plan.trials, asked, watch or unwatched, across)
        answers = [
            CardForecast(
                card=card.name,
                memory_bytes=size,
                ranked=found.ranked(number),
                others=found.ranked(number, of_other_recipes=True),
                per_hour=prices[card.name].price if card.name in prices else None,
            )
            for number, (card, size) in enumerate(asked)
        ]
    return TuneForecast(
        config=space.config,
        answers=tuple(answers),
        considered=len(space.plan.trials),
        sets=found.sets,
        left_out=found.left_out,
    )


def _sizes(card: Gpu, memory: Sequence[str]) -> list[int]:
    """No budget is larger than the card."""
    sizes = {min(size_bytes(text), card.total_bytes) for text in memory}
    return sorted(sizes or {card.total_bytes})


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuForecast:
    """A way of sharing a configuration that was measured on one GPU."""

    sharding: str
    gpus: int
    effective_batch: int
    samples_per_second: float
    """Of all GPUs."""
    low: float
    high: float
    memory_bytes: int | None
    """Of each GPU: the most that it may take; None if nothing bounds it."""
    scaling_efficiency: float
    """Its speed, as a share of what so many GPUs would have that each train like the one."""
    is_host_bound: bool
    """Whether the host may set its pace, so that the speed is uncertain."""

    def __str__(self) -> str:
        speed = f"{number(self.samples_per_second)} samples/s"
        parts = [
            f"{speed} ({number(self.low)} to {number(self.high)})",
            f"up to {memory(self.memory_bytes)} a GPU" if self.memory_bytes else "memory unknown",
            f"effective batch {self.effective_batch}",
            f"scaling efficiency {100 * self.scaling_efficiency:.0f} %",
            *(["the host may set the pace"] if self.is_host_bound else []),
        ]
        return f"{self.sharding}: {', '.join(parts)}"


def gpu_forecasts(
    dataset: Dataset, best: Offer, gpus: int, memory_bytes: int | None = None
) -> list[GpuForecast]:
    """The ways that fit the memory (bytes; None: the card's), the fastest first. A forecast is
    corrected by what the configuration was measured to take on one GPU.

    Raises ValueError if the card is not known, or the training cannot be forecast.
    """
    from orchestrator.prediction.estimator import predict
    from orchestrator.prediction.gpus import load_gpu
    from orchestrator.prediction.libraries import without_gpus
    from orchestrator.prediction.time.ranks_time import time_of

    row = best.measured.row
    if not row["gpu_model"] or best.measured.gpus > 1:
        raise ValueError("a forecast needs a row of one GPU")
    card = load_gpu(str(row["gpu_model"]))
    alone, _ = source_trial(dataset, row)
    if alone.own_code is not None:
        raise ValueError("your own code is only forecast by predict --allow-own-code")
    shared = list(_shared(alone, SweepConfig.from_json(dataset.run.config), gpus))
    with without_gpus():
        of_one, *predictions = predict([alone, *shared], card)
    time, *times = (
        None if own.step is None else time_of(own.step, card) for own in (of_one, *predictions)
    )
    if time is None:
        raise ValueError(of_one.unknown or "the step of this training is not forecast")
    speed = best.measured.samples_per_second
    correction = speed * time.likely_seconds_per_sample
    found = []
    for spec, own, own_time in zip(shared, predictions, times, strict=True):
        if own_time is not None and own.fits(memory_bytes or card.total_bytes) != "no":
            found.append(_forecast(spec, own, own_time, correction, speed))
    return sorted(found, key=lambda own: -own.samples_per_second)


def _shared(alone: TrialSpec, config: SweepConfig, gpus: int) -> list[TrialSpec]:
    """The same micro-batch on every GPU, and the same effective batch if that is possible."""
    resources = config.resources.model_copy(update={"gpus_per_trial": gpus})
    own = replace(config, resources=resources)
    is_divided = alone.accumulation % gpus == 0
    accumulation = alone.accumulation // gpus if is_divided else alone.accumulation
    choices = {**alone.choices, "accumulation": accumulation}
    ways = [way for way in SHARDING.variants if way != SHARDING.default]
    return [trial_spec({**choices, SHARDING.name: way}, own, has_gpu=True) for way in ways]


def _forecast(
    spec: TrialSpec, own: Prediction, time: StepTime, correction: float, of_one: float
) -> GpuForecast:
    bounded = None if own.bounds is None else own.bounds.most
    likely = correction / time.likely_seconds_per_sample
    return GpuForecast(
        sharding=str(spec.choices[SHARDING.name]),
        gpus=spec.world_size,
        effective_batch=spec.effective_batch,
        samples_per_second=likely,
        low=min(likely, correction * time.samples / time.high),
        high=max(likely, correction * time.samples / time.low),
        memory_bytes=bounded if own.device is None else own.device.most,
        scaling_efficiency=likely / (spec.world_size * of_one),
        is_host_bound=time.bound != "gpu",
    )
