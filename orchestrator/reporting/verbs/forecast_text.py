"""The forecast of ``tune`` in words and as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jobs.techniques.axes.sharding import SHARDING
from orchestrator.labels import label
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.reporting.verbs.prediction import time_row, time_words
from orchestrator.units import HOUR_SECONDS, memory, number

if TYPE_CHECKING:
    from orchestrator.api.forecasts import CardForecast, TuneForecast
    from orchestrator.prediction.tune.traced_sets import TracedCandidate

_SHOWN = 3
_SAMPLES = 1_000_000
"""Samples whose price is compared."""


def text(forecast: TuneForecast) -> str:
    """For each card and memory the fastest configurations, and how sure that is."""
    counted = (
        f"{forecast.considered:,} configurations: {forecast.sets} sets of techniques are forecast"
    )
    lines = [f"{counted}, {forecast.left_out} are like one of these or not traced"]
    axes = forecast.config.axes_in_play
    for answer in forecast.answers:
        lines.append(f"{answer.card}, {memory(answer.memory_bytes)}")
        if answer.ranked:
            lines += _listed(answer.ranked[:_SHOWN], axes)
            lines.append(f"  {_how_sure(answer)}")
        else:
            lines.append("  nothing fits" if forecast.sets else "  nothing can be forecast")
        if answer.others and (not answer.ranked or _is_faster(answer.others[0], answer.ranked[0])):
            lines.append("  the fastest that trains differently, as other trainers do by default:")
            lines += _listed(answer.others[:1], axes)
    if any(answer.per_hour is not None for answer in forecast.answers):
        lines.append(_cheapest(forecast))
    return visible("\n".join(lines))


def _is_faster(one: TracedCandidate, other: TracedCandidate) -> bool:
    return one.seconds_per_sample < other.seconds_per_sample


def _listed(candidates: Sequence[TracedCandidate], axes: Sequence[str]) -> Iterator[str]:
    for place, own in enumerate(candidates, 1):
        gpus = " · one GPU" if own.spec.world_size == 1 and SHARDING.name in axes else ""
        yield f"  {place}. {label(own.spec.choices, axes)}{gpus}"
        # Of compiled code the likely figure is known.
        is_likely = own.step is not None and own.step.is_compiled
        needs = f"{'about' if is_likely else 'at most'} {memory(own.device_bytes)}"
        needs += " a GPU" if own.spec.world_size > 1 else ""
        if own.is_of_longest:
            needs += " on the longest rows, and what other lengths leave in the allocator's cache"
        time = "time not known" if own.time is None else time_words(own.time)
        yield f"     {time}; {needs}"


def _rivals(answer: CardForecast) -> int:
    """Other sets that the errors of the forecast may have hidden the speed of."""
    best, *others = (own.time for own in answer.ranked)
    slowest = math.inf if best is None else best.high / best.samples
    return sum(own is None or own.low / own.samples <= slowest for own in others)


def _how_sure(answer: CardForecast) -> str:
    if answer.ranked[0].time is None:
        return "how fast what fits is depends on the host, so it is not forecast"
    if rivals := _rivals(answer):
        others = len(answer.ranked) - 1
        return f"{rivals} of {others} others may be as fast: their intervals overlap"
    return "surely the fastest of these sets: no interval of another one reaches it"


def _price(answer: CardForecast) -> float | None:
    if answer.per_hour is None or not answer.ranked or answer.ranked[0].time is None:
        return None
    best = answer.ranked[0]
    seconds = best.seconds_per_sample * _SAMPLES
    return answer.per_hour * best.spec.world_size * seconds / HOUR_SECONDS


def _cheapest(forecast: TuneForecast) -> str:
    prices = {price: own.card for own in forecast.answers if (price := _price(own)) is not None}
    if not prices:
        return "nothing of which the time is known fits on a card with a price"
    least = min(prices)
    return f"the cheapest: {prices[least]}, {number(least)} for {_SAMPLES:,} samples"


def plain(forecast: TuneForecast) -> dict[str, Any]:
    """Plain values: bytes as integers, times in seconds."""
    return {
        "considered": forecast.considered,
        "sets": forecast.sets,
        "left_out": forecast.left_out,
        "answers": [_answer(own) for own in forecast.answers],
    }


def _answer(answer: CardForecast) -> dict[str, Any]:
    return {
        "card": answer.card,
        "memory_bytes": answer.memory_bytes,
        "price_of_a_million_samples": _price(answer),
        "may_be_as_fast": _rivals(answer) if answer.ranked else None,
        "ranked": _plain_list(answer.ranked),
        "trains_differently": _plain_list(answer.others),
    }


def _plain_list(candidates: Sequence[TracedCandidate]) -> list[dict[str, Any]]:
    return [
        {
            "choices": dict(own.spec.choices),
            "gpus": own.spec.world_size,
            "device_bytes": own.device_bytes,
            **time_row(own.time),
        }
        for own in candidates
    ]
