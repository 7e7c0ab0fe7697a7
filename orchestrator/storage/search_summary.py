"""What a search says of itself at its end, as ``run.json`` holds it under ``search``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPick:
    trial_id: str
    samples_per_second: float
    memory_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetResult:
    """What a search found for one memory budget, as far as it has got."""

    budget_bytes: int | None
    """None where the machine has no GPU and no budget was named."""
    recipe: str
    """"": the baseline's training recipe; "any": all recipes together."""
    pick: MeasuredPick | None
    """The fastest measured configuration within the budget; None if no measured one fits."""
    considered: int
    """Number of configurations that could be the best."""
    ruled_out: int
    """How many of them were not measured because they do not fit or do not run."""
    measured: int
    """How many of them were measured."""
    expected_gain: float | None
    """Expected value of the largest gain of any unmeasured configuration over the pick, as a share
    of the pick's speed; None while it is unknown."""
    gain_at_most: float | None
    """Upper bound of this gain, with probability ``confidence``; None while it is unknown."""
    confidence: float
    is_settled: bool
    """Whether ``expected_gain`` is within the search's regret, or surely no configuration fits."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSummary:
    """The parts of a search's summary that pages and verbs read."""

    kind: str
    planned: int
    measured: int
    skipped: Mapping[str, int]
    """Rule -> how many trials it left out."""
    effective_batch: int | None = None
    """The effective batch that every result has, if one was asked for."""
    results: tuple[BudgetResult, ...] = ()
    by_gpu_model: Mapping[str, SearchSummary] = field(default_factory=dict)
    """GPU model -> its own summary, if there are several."""
    audit: Mapping[str, Any] | None = None

    @property
    def answers_budgets(self) -> bool:
        return bool(self.results or self.by_gpu_model)

    def of_gpu_model(self, gpu_model: str) -> SearchSummary:
        return self.by_gpu_model.get(gpu_model, self)
