"""The steps that all measuring verbs share: run a session, and print what happens."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TextIO

from jobs.spec import Needs, TrialSpec
from orchestrator.planning.settings import SweepConfig
from orchestrator.running.cluster import prepare, run_trials
from orchestrator.running.nodes import Cluster, ClusterError
from orchestrator.running.options import RunOptions
from orchestrator.running.session import Session
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import count


def command_of(verb: str) -> str:
    """The command line of this process, as a user would type it."""
    return shlex.join(["python", "-m", f"orchestrator.{verb}", *sys.argv[1:]])


def run_description(config: SweepConfig, verb: str) -> dict[str, Any]:
    """The content of ``run.json`` before anything is measured."""
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
    """The time budget in seconds; None if there is none.

    The command line comes first. The configuration's budget counts only without a GPU.
    """
    if options.time_budget_seconds is not None:
        return options.time_budget_seconds
    if cluster.gpus:
        return None
    return config.cpu_fallback.time_budget_seconds


def progress_stream(options: RunOptions) -> TextIO:
    """The stream that progress is printed to: stderr if stdout is for JSON."""
    if options.as_json:
        return sys.stderr
    return sys.stdout


def opening_lines(
    cluster: Cluster, folder: RunFolder, time_budget_seconds: float | None
) -> Iterator[str]:
    """Lines to print before the first trial: about the machine, the time budget and the folder."""
    if not cluster.gpus:
        yield (
            "   without a GPU, memory is that of live tensors and the process's resident peak,"
            " and speed is this processor's"
        )
    if time_budget_seconds is not None:
        minutes = time_budget_seconds / 60
        yield f"   ends within {minutes:.3g} minutes; trials not started by then are skipped"
    yield f"   writing to {folder.path}"
    for path in folder.unreadable:
        yield (
            f"-- {path} is not a record of this program; it is left alone, or moves to superseded/"
            " if its trial is measured"
        )


def print_kept_count(session: Session) -> None:
    """Print how many earlier records were kept, if there are any."""
    if session.reused:
        kept = count(session.reused, "trial")
        session.message(f"{kept} measured before: kept (--fresh measures them again)")


def slots_in_words(cluster: Cluster) -> str:
    """``2 GPUs (NVIDIA H200)``, or a note that there is no GPU."""
    gpus = "no GPU: measuring on the CPU"
    if cluster.gpus:
        gpus = count(cluster.gpus, "GPU")
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

    ``to_build_for`` are trials whose DeepSpeed operators are built first, once per node. ``needs``
    is what the configuration wants a trial to reserve. ``run`` is the content of ``run.json``, and
    ``on_slots`` is passed to ``run_trials``. Raises RunFolderError or ClusterError.
    """
    reused_at_first = session.reused
    try:
        folder.describe({**run, "finished": False})
        # Operators are built once for all trials, so that no trial's time includes the build.
        ops = {name for spec in to_build_for for name in spec.settings.builds}
        described = {**run, "one_time_costs": prepare(cluster, sorted(ops))}
        folder.describe({**described, "finished": False})
        try:
            notes = run_trials(session, cluster, needs, on_slots=on_slots)
        except ClusterError:
            session.write_missing_records()
            raise
        session.write_missing_records()
        # Some searches create trials while they run. So the number of reused records is known only
        # at the end.
        if session.reused > reused_at_first:
            print_kept_count(session)
    finally:
        session.tell_closed()
    end = {"notes": [*run.get("notes", ()), *notes], "search": dict(session.search.summary())}
    folder.describe({**described, **end})
