"""A whole sweep: from its plan, made while Ray starts, to a record for every planned trial."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Self

from jobs.node import environment
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.planning.plan import Plan, order_by_size, plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.prediction.tune.tune_forecast import largest_that_fit
from orchestrator.prediction.tune.worth_tracing import Sets, worth_tracing
from orchestrator.prediction.unsupported import has_images
from orchestrator.running.background_prediction import BackgroundPredictor
from orchestrator.running.close_reason import CloseReason, more_time
from orchestrator.running.early_start import Start
from orchestrator.running.gpu_screening import screened_cluster
from orchestrator.running.measurement import RunRequest, measure, slots_in_words
from orchestrator.running.nodes import Cluster
from orchestrator.running.observers import Observer
from orchestrator.running.observers.event_log import EventLog
from orchestrator.running.observers.prometheus import Metrics
from orchestrator.search.base import Search
from orchestrator.search.registry import SEARCHES, build_search
from orchestrator.search.several import for_gpu_model, per_gpu_model
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import count

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
        predictor = _predictor(planned_config, planned.trials)
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
        config=planned_config, plan=planned, trials=trials, searches=searches, predictor=predictor
    )


def _predictor(config: SweepConfig, trials: Sequence[TrialSpec]) -> BackgroundPredictor:
    if not config.search.is_space or _is_recorded(trials):
        return BackgroundPredictor()

    def of_gpu_model(chosen: Sequence[TrialSpec]) -> Sequence[Sets]:
        return worth_tracing(for_gpu_model(trials, chosen[0].gpu_model))

    # A search begins with what is forecast to win.
    largest = partial(largest_that_fit, budgets=config.budgets)
    return BackgroundPredictor(largest, of_gpu_model, gives_times=True)


def _is_recorded(trials: Sequence[TrialSpec]) -> bool:
    """Whether what is recorded of techniques says more of a training than forecasts: by replay,
    searches that began with forecasts took longer."""
    is_equal = not trials[0].may_be_ragged and not has_images(trials[0])
    return is_equal and all(spec.world_size == 1 for spec in trials)


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepEnd:
    is_interrupted: bool
    failure: str
    """Why no trial ended ok, in a sentence; empty if one did."""


def run_sweep(
    start: Start, make_plan: MakePlan = planned_as_written, *, verb: str = "sweep"
) -> SweepEnd:
    """Measure the plan on every GPU model of the cluster. The plan is made for this machine while
    Ray starts, and again for a cluster unlike it. Raises what ``measure`` and the start raise."""
    config = start.config
    with ThreadPoolExecutor(max_workers=1) as pool, ExitStack() as stack:
        here = Machines.here()
        early = pool.submit(planned_sweep, config, make_plan, here)
        screening = stack.enter_context(screened_cluster(start.options.address, config.resources))
        machines = Machines.of(screening.cluster)
        if machines != here:
            early = pool.submit(planned_sweep, config, make_plan, machines)
        planned = early.result()
        start.check_model()
        if planned.predictor is not None:
            stack.enter_context(planned.predictor).begin_early()
        work = _measurement(planned, screening.cluster, start.folder, verb)
        session = measure(work, screening, start, start.folder)
    return SweepEnd(
        is_interrupted=session.close_reason is CloseReason.INTERRUPTED,
        failure=why_none_ok(start.folder.records().values(), is_tune=verb == "tune"),
    )


def why_none_ok(records: Iterable[TrialRecord], *, is_tune: bool = False) -> str:
    """A sentence with the commonest reason why no trial ended ok; empty if one did."""
    listed = list(records)
    if any(record.outcome is Outcome.OK for record in listed):
        return ""
    if not listed:
        return "no trial ended ok: nothing is planned"
    # The trials that were started say most. If there is none, those not skipped do, and then all.
    started = [record for record in listed if record.started_at]
    not_skipped = [record for record in listed if record.outcome is not Outcome.SKIPPED]
    telling = started or not_skipped or listed
    ((outcome, amount),) = Counter(record.outcome for record in telling).most_common(1)
    reasons = Counter(record.reason for record in telling if record.outcome is outcome)
    ((reason, _),) = reasons.most_common(1)
    trials = f"{amount} of {count(len(listed), 'trial')}"
    go_on = ""
    if outcome is Outcome.SKIPPED:
        go_on = f"; {more_time(started, is_tune=is_tune) or '--resume with more time goes on'}"
    return f"no trial ended ok: {trials} ended with {outcome.value}, most often: {reason}{go_on}"


def _measurement(
    planned: PlannedSweep, cluster: Cluster, folder: RunFolder, verb: str
) -> RunRequest:
    config = planned.config
    planned_ids = {spec.trial_id for specs in planned.trials.values() for spec in specs}

    def is_wanted(spec: TrialSpec) -> bool:
        planned_id = spec.follow_up.follows_trial if spec.follow_up else spec.trial_id
        return planned_id in planned_ids

    observers: list[Observer] = [EventLog(folder), Metrics(config.name, len(planned_ids))]
    if planned.predictor is not None:
        observers.append(planned.predictor)
    # The search reads this mapping, and the cluster updates it.
    slots = cluster.slots_by_model()
    # Only a few configurations of a space are measured. So it has no number of planned trials, no
    # records of those that are ruled out, and operators that are built when they are needed.
    is_space = config.search.is_space
    return RunRequest(
        config=config,
        verb=verb,
        headline=_headline(planned, cluster),
        search=per_gpu_model(planned.searches, slots),
        is_wanted=is_wanted,
        axes=config.axes_in_play,
        needs=next((spec.needs for spec in planned.plan.trials), None),
        planned=None if is_space else len(planned_ids),
        ruled_out=() if is_space else planned.plan.ruled_out,
        observers=observers,
        on_slots=slots.update,
    )


def _headline(planned: PlannedSweep, cluster: Cluster) -> str:
    models, trials = len(planned.trials), len(planned.plan.trials)
    on_models = f" on each of {models} GPU models" if models > 1 else ""
    considered = f"{count(trials, 'configuration')} considered{on_models}"
    if not planned.config.search.is_space:
        ruled_out = len(planned.plan.ruled_out)
        considered = f"{count(trials, 'trial')}{on_models}, {ruled_out} ruled out"
    return f"{planned.config.name}: {considered}, on {slots_in_words(cluster)}"
