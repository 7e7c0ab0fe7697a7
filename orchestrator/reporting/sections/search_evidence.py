"""How sure a search for the best configurations is: what it considered, and the possible gain."""

from __future__ import annotations

import math

from orchestrator.storage.search_summary import BudgetResult
from orchestrator.units import change

_CERTAIN = 0.0005
"""A possible gain below this share is written as no gain."""
_TOO_LITTLE_KNOWN = 3.0
"""A possible gain above this share is no figure to plan with. It follows from little more than the
prior, for example while every measured row waits for the host."""
_FEW_PERCENT = 0.1
"""Below this share, a gain is written with a decimal."""


def counts(result: BudgetResult) -> str:
    """The configurations that were considered, ruled out and measured."""
    return (
        f"considered {result.considered:,}, ruled out without a trial"
        f" {result.ruled_out:,}, measured {result.measured:,}"
    )


def certainty(result: BudgetResult) -> str:
    """The largest possible gain of an unmeasured configuration, with its probability."""
    at_most = result.gain_at_most
    sure = f"{100 * result.confidence:.3g} %"
    if result.pick is None:
        if result.is_settled:
            return f"nothing considered fits, with a probability of at least {sure}"
        return "nothing measured fits; whether anything does is not known"
    if at_most is None or not math.isfinite(at_most):
        return "how much faster the unmeasured configurations could be is not known"
    if at_most > _TOO_LITTLE_KNOWN:
        return "too little is known: an unmeasured configuration could be several times faster"
    if at_most < _CERTAIN:
        return f"none of the unmeasured configurations is faster, with {sure} probability"
    most = change(1 + at_most)
    if at_most < _FEW_PERCENT:
        most = f"+{100 * at_most:.1f} %"
    return f"the unmeasured configurations gain at most {most} in speed, with {sure} probability"
