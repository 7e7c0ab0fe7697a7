"""Two runs of the same configurations: what changed between them beyond what chance explains."""

from orchestrator.analysis.comparison.changes import Change, Comparison, Shift
from orchestrator.analysis.comparison.run_differences import Difference
from orchestrator.analysis.comparison.two_runs import compare

__all__ = ["Change", "Comparison", "Difference", "Shift", "compare"]
