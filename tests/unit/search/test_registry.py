"""How a sweep's searches are built: options, predicted memory and follow-ups."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.spec import DataSpec, ModelSpec, TrialSpec
from orchestrator.planning.keys.search_options import SEARCH_KINDS
from orchestrator.planning.settings import SweepConfig
from orchestrator.search.base import Grid
from orchestrator.search.follow_ups import FollowUps
from orchestrator.search.registry import SEARCHES, build_search
from tests.support.devices import make_trial

TRIALS = [make_trial(size, 1) for size in (1, 2, 4)]


def config(kind: str, **options: Any) -> SweepConfig:
    """A sweep with this search."""
    return SweepConfig(
        name="small",
        source=Path("small.yaml"),
        model=ModelSpec(task="causal-lm"),
        data=DataSpec(),
        search=SEARCH_KINDS[kind](**options),
    )


class Predictor:
    """Predicts a byte per sample, and remembers for which GPU models it was asked."""

    def __init__(self) -> None:
        self.gpu_models: list[str] = []

    def of(self, choose: Callable[[], Sequence[TrialSpec]], gpu_model: str) -> Mapping[str, float]:
        self.gpu_models.append(gpu_model)
        return {trial.trial_id: float(trial.micro_batch) for trial in choose()}

    def seconds_on(self, gpu_model: str) -> Mapping[str, float]:
        return {}


@pytest.mark.parametrize("kind", SEARCH_KINDS)
def test_factory_builds_every_kind_with_its_described_options(kind):
    search = build_search(TRIALS, config(kind))
    assert list(search.pending()) == TRIALS


def test_factory_gives_predicted_memory_to_a_search_that_uses_it():
    predictor = Predictor()
    for kind in SEARCHES:
        build_search(TRIALS, config(kind), gpu_model=f"{kind} GPU", predictor=predictor)
    assert predictor.gpu_models == ["frontier GPU", "best GPU"]


@pytest.mark.parametrize(("wanted", "built"), [(True, FollowUps), (False, Grid)])
def test_factory_adds_follow_ups_if_asked(wanted, built):
    assert type(build_search(TRIALS, config("grid"), with_follow_ups=wanted)) is built
