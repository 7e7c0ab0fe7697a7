"""The recorded runs of docs/results."""

from pathlib import Path

from orchestrator.analysis.dataset import EnvironmentResults, load_dataset

RECORDED = Path(__file__).parents[2] / "docs" / "results"


def recorded(run: str) -> EnvironmentResults:
    results = load_dataset(RECORDED / run).main
    assert results is not None
    return results
