"""Why one trial is faster than another, or needs less memory."""

from orchestrator.analysis.explanation.result import (
    CLOSE,
    Breakdown,
    Difference,
    Explanation,
    Side,
    Term,
)
from orchestrator.analysis.explanation.two_trials import NotExplainableError, explain

__all__ = [
    "CLOSE",
    "Breakdown",
    "Difference",
    "Explanation",
    "NotExplainableError",
    "Side",
    "Term",
    "explain",
]
