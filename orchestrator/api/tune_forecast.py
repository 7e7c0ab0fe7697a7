"""What ``tune`` would find, forecast without a GPU: as a function, and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orchestrator.units import size_bytes

if TYPE_CHECKING:
    from orchestrator.planning.settings import SweepConfig
    from orchestrator.prediction.estimator import Watch
    from orchestrator.prediction.gpus import Gpu
    from orchestrator.prediction.tune.tune_forecast import Candidate
    from orchestrator.storage.prices import Price


@dataclass(frozen=True, kw_only=True, slots=True)
class CardForecast:
    """The configurations for a card and a memory, the fastest first."""

    card: str
    memory_bytes: int
    ranked: Sequence[Candidate]
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
) -> TuneForecast:
    """For each memory on ``gpu`` (default: the H200), the configurations of ``tune``'s space by
    forecast speed. Without ``memory``, for the card's own; with ``prices``, for each priced card.

    Raises ValueError if the card has no constants.
    """
    from orchestrator.planning.tune_space.space import Goal, tune_space
    from orchestrator.prediction.estimator import unwatched
    from orchestrator.prediction.gpus import load_gpu
    from orchestrator.prediction.libraries import without_gpus
    from orchestrator.prediction.tune.tune_forecast import forecast_space

    space = tune_space(config, Goal(), has_gpu=True, is_missing=lambda _: False)
    named = [gpu] if gpu else [name for name in prices if not name[0].isdigit()] or ["h200"]
    cards = [load_gpu(name) for name in named]
    with without_gpus():
        # The traces are those of the first card; others may pick other attention kernels.
        found = forecast_space(space.plan.trials, cards[0], watch or unwatched)
        answers = [
            CardForecast(
                card=card.name,
                memory_bytes=size,
                ranked=found.ranked(size, card),
                per_hour=prices[card.name].price if card.name in prices else None,
            )
            for card in cards
            for size in _sizes(card, memory)
        ]
    return TuneForecast(
        config=space.config,
        answers=tuple(answers),
        considered=len(space.plan.trials),
        sets=len(found.sets),
        left_out=found.left_out,
    )


def _sizes(card: Gpu, memory: Sequence[str]) -> list[int]:
    """No budget is larger than the card."""
    sizes = {min(size_bytes(text), card.total_bytes) for text in memory}
    return sorted(sizes or {card.total_bytes})
