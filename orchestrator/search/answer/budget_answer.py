"""The answer for one memory budget, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPick:
    """A measured configuration."""

    trial_id: str
    samples_per_second: float
    memory_bytes: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "trial_id": self.trial_id,
            "samples_per_second": self.samples_per_second,
            "memory_bytes": self.memory_bytes,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetAnswer:
    """The answer for one budget, as far as the search has got."""

    budget_bytes: float
    """Infinite where the machine has no GPU and no budget was named."""
    recipe: str
    """"": the baseline's training recipe; "any": all recipes together."""
    pick: MeasuredPick | None
    """The fastest measured configuration within the budget; None if no measured one fits."""
    runner_up: MeasuredPick | None
    """The fastest measured configuration with other techniques than the pick."""
    considered: int
    """Number of configurations that could be the answer."""
    ruled_out: int
    """How many of them were not measured because they do not fit or do not run."""
    measured: int
    """How many of them were measured."""
    expected_gain: float | None
    """Expected value of the largest gain of any unmeasured configuration over the pick, as a share
    of the pick's speed; None while it is unknown."""
    gain_at_most: float | None
    """Upper bound of this gain, with probability ``certainty``; None while it is unknown."""
    certainty: float
    is_answered: bool
    """Whether ``expected_gain`` is within the search's regret, or surely no configuration fits."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        budget = None
        if math.isfinite(self.budget_bytes):
            budget = int(self.budget_bytes)
        return {
            "budget_bytes": budget,
            "recipe": self.recipe,
            "pick": _json_of(self.pick),
            "runner_up": _json_of(self.runner_up),
            "considered": self.considered,
            "ruled_out": self.ruled_out,
            "measured": self.measured,
            "expected_gain": self.expected_gain,
            "gain_at_most": self.gain_at_most,
            "certainty": self.certainty,
            "is_answered": self.is_answered,
        }


def _json_of(pick: MeasuredPick | None) -> dict[str, Any] | None:
    if pick is None:
        return None
    return pick.to_json()
