"""From a search to its records: what every verb that measures has in common."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import Needs, TrialSpec
from orchestrator.planning.loggers import Chosen
from orchestrator.planning.settings import SweepConfig
from orchestrator.running import cluster as ray_cluster
from orchestrator.running import loggers
from orchestrator.running.nodes import Cluster
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.storage.run_folder import RunFolder


def still_wanted(
    folder: RunFolder,
    is_wanted: Callable[[TrialSpec], bool],
    *,
    fresh: bool,
    models: Collection[str] = (),
) -> dict[str, TrialRecord]:
    """Earlier records of wanted trials; all others are removed, for they must not appear in the run's report.

    Where there are several ``models`` of GPU, a trial is named for its own, and where there is one again, for none:
    what was measured on a model before keeps its place under its new name.
    """
    wanted: dict[str, TrialRecord] = {}
    for trial_id, record in folder.records().items():
        if not fresh and is_wanted(record.spec):
            wanted[trial_id] = record
            continue
        folder.remove(trial_id)
        model = str(record.environment.get("gpu_model") or "") if len(models) > 1 else ""
        spec = dataclasses.replace(record.spec, gpu_model=model)
        if not fresh and is_wanted(spec):
            wanted[spec.trial_id] = folder.write(dataclasses.replace(record, spec=spec))
    return wanted


def opening(
    cluster: Cluster, folder: RunFolder, time_budget_seconds: float | None
) -> Iterator[str]:
    """What to say before measuring: of the machine, of the time there is, of the folder."""
    if not cluster.gpus:
        yield (
            "   memory is then what tensors hold (and the process's resident peak), speed is this processor's;"
            " smallest trials first"
        )
    if time_budget_seconds is not None:
        minutes = time_budget_seconds / 60
        yield f"   it ends within {minutes:.3g} minutes; what has had no turn by then is skipped"
    yield f"   writing to {folder.path}"
    for path in folder.unreadable:
        yield f"-- {path} is not a record of this program; it is left alone"


def reuse(
    session: Session, earlier: Mapping[str, TrialRecord], cluster: Cluster, *, resume: bool
) -> Iterator[str]:
    """Keep earlier records that need not be repeated, and say how many there are."""
    session.reuse(earlier, (node.environment for node in cluster.nodes), resume=resume)
    yield from kept(session)


def kept(session: Session) -> Iterator[str]:
    """How many earlier records were kept, if any."""
    if session.reused:
        yield f"-- {session.reused} trials were measured before and are kept (--fresh measures them again)"


def measure(
    session: Session,
    cluster: Cluster,
    folder: RunFolder,
    *,
    like: Iterable[TrialSpec],
    needs: Needs | None,
    run: Mapping[str, Any],
    trackers: Chosen,
) -> bool:
    """Run the session on the cluster until every trial has its record; trials are ``like`` these.

    What those need to be built is built first, once a node. ``run`` is what ``run.json`` says of the run. Whether the
    cluster has grown meanwhile. Raises TrackerError, before anything is measured.
    """
    told = loggers.callbacks(trackers, folder.path, run)
    ops = sorted({op for spec in like for op in spec.recipe.prepares})
    folder.describe({**run, "finished": False})
    described = {**run, "one_time_costs": ray_cluster.prepare(cluster, ops)}
    folder.describe({**described, "finished": False})
    roster = ray_cluster.run(session, cluster, needs, told)
    session.account()
    notes = [*run.get("notes", ()), *roster.notes]
    folder.describe({**described, "notes": notes, "search": dict(session.search.account)})
    return roster.has_grown


def run_json(config: SweepConfig, verb: str) -> dict[str, Any]:
    """What a run folder says of its run, but for its one-time costs."""
    return {
        "name": config.name,
        "command": shlex.join(["python", "-m", f"orchestrator.{verb}", *sys.argv[1:]]),
        "config": config.to_json(),
        "budgets": list(config.budgets),
        "baseline": dict(config.baseline),
        "axes": list(config.axes_in_play),
        "started_at": time.time(),
    }


def slots_in_words(cluster: Cluster) -> str:
    """``2 GPUs (NVIDIA H200)``, or that there is none."""
    gpus = (
        f"{cluster.gpus} GPU{'s' * (cluster.gpus != 1)}"
        if cluster.gpus
        else "no GPU: measuring on the CPU"
    )
    return f"{gpus} ({cluster.hardware})"


def show(progress: Progress, lines: Iterable[str]) -> None:
    """Print lines as one."""
    for line in lines:
        progress.say(line)
