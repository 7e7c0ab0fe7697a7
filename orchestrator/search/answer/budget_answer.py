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
    """What is known of one budget."""

    budget_bytes: float
    """Infinite where the machine has no GPU and no budget was named."""
    recipe: str
    """"": the baseline's training recipe; "any": all recipes together."""
    pick: MeasuredPick | None
    """The fastest measured within the budget; None: nothing measured fits."""
    runner_up: MeasuredPick | None
    """The fastest measured of other techniques."""
    considered: int
    """Configurations that could answer."""
    ruled_out: int
    """Of these, those whose predicted memory does not fit, and those that do not run."""
    measured: int
    """Of these, those that were measured."""
    expected_gain: float | None
    """Mean of the most that anything unmeasured could still gain, as a share of the pick's speed;
    None while it is unknown."""
    gain_at_most: float | None
    """The gain is at most this share with probability ``certainty``."""
    certainty: float
    is_answered: bool
    """Whether no more than the wanted regret is left, or surely nothing fits."""

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
