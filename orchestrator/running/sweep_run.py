"""A whole sweep: from its configuration to a record for every planned trial."""

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.early_start import Start
from orchestrator.running.gpu_screening import screened_cluster
from orchestrator.running.measurement import RunRequest, measure, slots_in_words
from orchestrator.running.nodes import Cluster
from orchestrator.running.observers import Observer
from orchestrator.running.observers.event_log import EventLog
from orchestrator.running.observers.prometheus import Metrics
from orchestrator.running.planned_sweep import (
    Machines,
    MakePlan,
    PlannedSweep,
    planned_as_written,
    planned_sweep,
)
from orchestrator.search.several import per_gpu_model
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import count


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepEnd:
    is_interrupted: bool
    failure: str
    """Why no trial ended ok, in a sentence; empty if one did."""


def run_sweep(
    start: Start, make_plan: MakePlan = planned_as_written, *, verb: str = "sweep"
) -> SweepEnd:
    """Measure the plan on every GPU model that the cluster has. The plan and its searches are made
    for this machine while Ray starts, and again for a cluster that is unlike it. Raises what
    ``measure``, ``screened_cluster`` and ``start.check_model`` raise."""
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
            stack.enter_context(planned.predictor)
        work = _measurement(planned, screening.cluster, start.folder, verb)
        session = measure(work, screening, start, start.folder)
    return SweepEnd(
        is_interrupted=session.close_reason is CloseReason.INTERRUPTED,
        failure=why_none_ok(start.folder.records().values()),
    )


def why_none_ok(records: Iterable[TrialRecord]) -> str:
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
    return f"no trial ended ok: {trials} ended with {outcome.value}, most often: {reason}"


def _measurement(
    planned: PlannedSweep, cluster: Cluster, folder: RunFolder, verb: str
) -> RunRequest:
    config = planned.config
    planned_ids = {spec.trial_id for specs in planned.trials.values() for spec in specs}

    def is_wanted(spec: TrialSpec) -> bool:
        planned_id = spec.follow_up.follows_trial if spec.follow_up else spec.trial_id
        return planned_id in planned_ids

    observers: list[Observer] = [
        EventLog(folder),
        Metrics(config.name, len(planned_ids)),
    ]
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
