"""When the search ends, and how long a trial may take."""

import math
from dataclasses import dataclass

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

    def allowed_seconds(self, expected: float, left: float) -> float:
        """The slot time that a trial may take, of what is ``left``; ``expected`` is infinite before
        any speed is known."""
        if math.isinf(self.slot_seconds):
            return math.inf
        if math.isinf(expected):
            return max(left / 2, _LAST_SECONDS)
        in_any_case = min(_ALLOWED_IN_ANY_CASE, self.slot_seconds / _ALLOWED_FACTOR)
        allowed = max(in_any_case, _ALLOWED_FACTOR * expected)
        # Half of what is left is for other trials. But one that was begun should be able to end.
        return min(allowed, max(left / 2, _LAST_SECONDS, _LAST_FACTOR * expected))
