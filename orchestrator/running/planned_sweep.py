"""The plan of a sweep and its searches. They take seconds to make, so they are made early."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from jobs.node import environment
from jobs.spec import TrialSpec
from orchestrator.planning.plan import Plan, order_by_size, plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.running.background_prediction import BackgroundPredictor
from orchestrator.running.nodes import Cluster
from orchestrator.search.base import Search
from orchestrator.search.registry import SEARCHES, build_search
from orchestrator.search.several import for_gpu_model

MakePlan = Callable[[SweepConfig, bool], tuple[SweepConfig, Plan]]
"""Takes a configuration, and whether there is a GPU. Returns what is run, and its plan."""


def planned_as_written(config: SweepConfig, has_gpu: bool) -> tuple[SweepConfig, Plan]:
    return config, plan(config, has_gpu=has_gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """What a planned sweep depends on. Equal machines have an equal plan and equal searches."""

    has_gpu: bool
    hardware: Mapping[str, str]
    """``TrialSpec.gpu_model`` -> name of the GPU, or of the processor without a GPU."""

    @classmethod
    def here(cls) -> Self:
        described = environment.describe()
        gpu_model = str(described["gpu_model"])
        hardware = gpu_model or str(described["cpu_model"])
        return cls(has_gpu=bool(gpu_model), hardware={"": hardware})

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        return cls(has_gpu=cluster.gpus > 0, hardware=cluster.hardware_by_model())


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PlannedSweep:
    """What is measured on each GPU model, and its search: a front belongs to one model."""

    config: SweepConfig
    plan: Plan
    trials: Mapping[str, tuple[TrialSpec, ...]]
    """GPU model -> its trials of the plan."""
    searches: Mapping[str, Search]
    """GPU model -> the search of its trials."""
    predictor: BackgroundPredictor | None
    """Predicts memory for the searches; None if they use no predictions."""


def planned_sweep(config: SweepConfig, make_plan: MakePlan, machines: Machines) -> PlannedSweep:
    """Make the plan of a configuration for some machines, and its searches."""
    planned_config, planned = make_plan(config, machines.has_gpu)
    # Without a GPU the time budget may not suffice, so the smallest trials come first.
    in_order = planned.trials if machines.has_gpu else order_by_size(planned.trials)
    predictor = None
    if machines.has_gpu and SEARCHES[planned_config.search.kind].to_predict is not None:
        predictor = BackgroundPredictor()
    trials = {model: for_gpu_model(in_order, model) for model in machines.hardware}
    searches = {}
    for model, name in machines.hardware.items():
        searches[model] = build_search(
            trials[model],
            planned_config,
            gpu_model=name,
            predictor=predictor,
            with_follow_ups=machines.has_gpu,
        )
    return PlannedSweep(
        config=planned_config,
        plan=planned,
        trials=trials,
        searches=searches,
        predictor=predictor,
    )
