"""Why one trial is faster than another, or needs less memory.

two_trials.py   finds both trials, and explains them
breakdowns.py   the difference in time and memory, in parts that add up to it
runtime.py      what ran differently
loss_curves.py  their losses, step by step
result.py       an explanation as data
"""

from orchestrator.analysis.explanation.loss_curves import LossCurves
from orchestrator.analysis.explanation.result import Breakdown, Difference, Explanation, Side, Term
from orchestrator.analysis.explanation.two_trials import NotExplainableError, explain

__all__ = [
    "Breakdown",
    "Difference",
    "Explanation",
    "LossCurves",
    "NotExplainableError",
    "Side",
    "Term",
    "explain",
]
