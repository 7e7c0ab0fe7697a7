"""When the search ends, and how long a trial may take."""

import math
from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array

_ALLOWED_FACTOR = 4.0
"""A trial may take this many times what is expected."""
_ALLOWED_IN_ANY_CASE = 60.0
"""So many seconds even if less is expected, at most the search's time / ``_ALLOWED_FACTOR``."""
_LAST_FACTOR, _LAST_SECONDS = 2.0, 10.0
"""Even if less time is left, a trial may take this many times what is expected, and so long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoppingRule:
    """When a query counts as settled, and when the search ends in any case."""

    regret: float
    """The fastest unmeasured candidate is expected to beat the pick by at most this share."""
    confidence: float
    """Probability of the upper bound of this gain, and that no candidate fits."""
    slot_seconds: float = math.inf
    """Slot time that the search may take."""

    def first_seconds(self, left: float) -> float:
        """The slot time that a trial may take, of what is ``left``, before any speed is known."""
        return math.inf if math.isinf(self.slot_seconds) else max(left / 2, _LAST_SECONDS)

    def allowed_seconds(self, expected: Array, left: float) -> Array:
        """The slot time that a trial may take, of what is ``left``, by the time that is
        ``expected`` of it."""
        if math.isinf(self.slot_seconds):
            return np.full_like(expected, math.inf)
        # Half of what is left is for other trials. But one that was begun should be able to end.
        in_any_case = min(_ALLOWED_IN_ANY_CASE, self.slot_seconds / _ALLOWED_FACTOR)
        allowed = np.maximum(in_any_case, _ALLOWED_FACTOR * expected)
        at_most = np.maximum(self.first_seconds(left), _LAST_FACTOR * expected)
        return np.minimum(allowed, at_most)
