"""Why one trial is faster than another, or needs less memory.

two_trials.py   finds both trials, and lists what ran differently
breakdowns.py   the difference in time and memory, in parts that add up to it
result.py       an explanation as data
"""

from orchestrator.analysis.explanation.result import (
    Breakdown,
    Difference,
    Explanation,
    LossCurves,
    Term,
)
from orchestrator.analysis.explanation.two_trials import NotExplainableError, explain

__all__ = [
    "Breakdown",
    "Difference",
    "Explanation",
    "LossCurves",
    "NotExplainableError",
    "Term",
    "explain",
]
