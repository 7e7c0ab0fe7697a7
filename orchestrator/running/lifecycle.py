"""From a search to its records: what every verb that measures has in common."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import Needs, TrialSpec
from orchestrator.planning.settings import SweepConfig
from orchestrator.running.cluster import prepare, run_trials
from orchestrator.running.nodes import Cluster
from orchestrator.running.options import RunOptions
from orchestrator.running.session import Session
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import count


def command_of(verb: str) -> str:
    """The command line that this process was started with."""
    return shlex.join(["python", "-m", f"orchestrator.{verb}", *sys.argv[1:]])


def run_description(config: SweepConfig, verb: str) -> dict[str, Any]:
    """What ``run.json`` says of a run before anything is measured."""
    return {
        "name": config.name,
        "command": command_of(verb),
        "config": config.to_json(),
        "budgets": list(config.budgets),
        "baseline": dict(config.baseline),
        "axes": list(config.axes_in_play),
        "started_at": time.time(),
    }


def time_budget_seconds(config: SweepConfig, options: RunOptions, cluster: Cluster) -> float | None:
    """The budget of the command line; without one, and without a GPU, the configuration's."""
    if options.time_budget_seconds is not None:
        return options.time_budget_seconds
    return None if cluster.gpus else config.cpu_fallback.time_budget_seconds


def wanted_records(
    folder: RunFolder,
    is_wanted: Callable[[TrialSpec], bool],
    *,
    fresh: bool = False,
    hardware: Mapping[str, str] | None = None,
) -> dict[str, TrialRecord]:
    """Earlier records of wanted trials by trial id. All others are removed from the folder, because
    they must not appear in the run's report.

    Only a sweep over several GPU models names them in its trials. So a record is renamed if it was
    measured when the cluster had fewer or more models, and nothing finished is repeated.
    ``hardware``: GPU model of a trial -> the model's name.
    """
    wanted: dict[str, TrialRecord] = {}
    for trial_id, record in folder.records().items():
        if not fresh and is_wanted(record.spec):
            wanted[trial_id] = record
            continue
        folder.remove(trial_id)
        for renamed in _renamed(record, hardware or {}):
            if not fresh and is_wanted(renamed.spec):
                wanted[renamed.trial_id] = folder.write(renamed)
    return wanted


def _renamed(record: TrialRecord, hardware: Mapping[str, str]) -> Iterator[TrialRecord]:
    """The record as that of the same trial in today's sweep, if its GPU model is still there."""
    for gpu_model, name in hardware.items():
        if name == record.environment.get("gpu_model"):
            spec = dataclasses.replace(record.spec, gpu_model=gpu_model)
            yield dataclasses.replace(record, spec=spec)


def opening_lines(
    cluster: Cluster, folder: RunFolder, time_budget_seconds: float | None
) -> Iterator[str]:
    """What to say before measuring: about the machine, the time budget and the folder."""
    if not cluster.gpus:
        yield (
            "   without a GPU, memory is that of live tensors and the process's resident peak,"
            " and speed is this processor's; smallest trials first"
        )
    if time_budget_seconds is not None:
        minutes = time_budget_seconds / 60
        yield f"   ends within {minutes:.3g} minutes; trials not started by then are skipped"
    yield f"   writing to {folder.path}"
    for path in folder.unreadable:
        yield f"-- {path} is not a record of this program; it is left alone"


def say_what_is_kept(session: Session) -> None:
    """Tell how many earlier records were kept, if any was."""
    if session.reused:
        kept = count(session.reused, "trial")
        session.message(f"{kept} measured before: kept (--fresh measures them again)")


def slots_in_words(cluster: Cluster) -> str:
    """``2 GPUs (NVIDIA H200)``, or that there is none."""
    gpus = count(cluster.gpus, "GPU") if cluster.gpus else "no GPU: measuring on the CPU"
    return f"{gpus} ({cluster.hardware})"


def measure(
    session: Session,
    cluster: Cluster,
    folder: RunFolder,
    *,
    to_build_for: Iterable[TrialSpec],
    needs: Needs | None,
    run: Mapping[str, Any],
    on_slots: Callable[[Mapping[str, int]], object] | None = None,
) -> None:
    """Run the session on the cluster until every trial has its record, and close it.

    What the trials ``to_build_for`` need is built first, once per node. ``needs`` is what the
    configuration wants a trial to reserve, ``run`` what ``run.json`` says of the run, and
    ``on_slots`` as in ``run_trials``. Raises RunFolderError.
    """
    ops = sorted({op for spec in to_build_for for op in spec.settings.builds})
    reused_at_first = session.reused
    try:
        folder.describe({**run, "finished": False})
        described = {**run, "one_time_costs": prepare(cluster, ops)}
        folder.describe({**described, "finished": False})
        notes = run_trials(session, cluster, needs, on_slots=on_slots)
        session.write_missing_records()
        if session.reused > reused_at_first:
            say_what_is_kept(session)
    finally:
        session.tell_closed()
    all_notes = [*run.get("notes", ()), *notes]
    search = dict(session.search.summary())
    folder.describe({**described, "notes": all_notes, "search": search})
