"""From a search to its records: what every verb that measures has in common."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from jobs.spec import Needs, TrialSpec
from orchestrator.planning.settings import SweepConfig
from orchestrator.running.cluster import prepare, run_trials
from orchestrator.running.earlier_records import EarlierRecords
from orchestrator.running.nodes import Cluster, ClusterError
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
    if cluster.gpus:
        return None
    return config.cpu_fallback.time_budget_seconds


def progress_stream(options: RunOptions) -> TextIO:
    """Where progress is printed: stderr if stdout is for JSON."""
    if options.as_json:
        return sys.stderr
    return sys.stdout


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
        yield (
            f"-- {path} is not a record of this program; it is left alone, or moves to superseded/"
            " if its trial is measured"
        )


def environment_lines(
    earlier: EarlierRecords, environments: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """What to say of earlier rows that were measured with other versions or another driver."""
    elsewhere = 0
    differing: set[str] = set()
    for record in earlier.wanted.values():
        if record.outcome.is_final and record.environment not in environments:
            elsewhere += 1
            differing.update(_differing(record.environment, environments[0]))
    if elsewhere:
        rows = count(elsewhere, "row")
        names = ", ".join(sorted(differing))
        yield (
            f"{rows} measured in another environment ({names}): measured again; each earlier row"
            " moves to superseded/ when its new one is written"
        )


def _differing(earlier: Mapping[str, Any], today: Mapping[str, Any]) -> set[str]:
    """The names of the values in which two environments differ."""
    return {name for name in {*earlier, *today} if earlier.get(name) != today.get(name)}


def say_what_is_kept(session: Session) -> None:
    """Tell how many earlier records were kept, if any was."""
    if session.reused:
        kept = count(session.reused, "trial")
        session.message(f"{kept} measured before: kept (--fresh measures them again)")


def slots_in_words(cluster: Cluster) -> str:
    """``2 GPUs (NVIDIA H200)``, or that there is none."""
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

    What the trials ``to_build_for`` need is built first, once per node. ``needs`` is what the
    configuration wants a trial to reserve, ``run`` what ``run.json`` says of the run, and
    ``on_slots`` as in ``run_trials``. Raises RunFolderError or ClusterError.
    """
    reused_at_first = session.reused
    try:
        folder.describe({**run, "finished": False})
        # What is built once is no part of any trial, so it is built before the first.
        described = {**run, "one_time_costs": prepare(cluster, _ops_of(to_build_for))}
        folder.describe({**described, "finished": False})
        try:
            notes = run_trials(session, cluster, needs, on_slots=on_slots)
        except ClusterError:
            session.write_missing_records()
            raise
        session.write_missing_records()
        # A search that makes its trials as it goes meets earlier records only now.
        if session.reused > reused_at_first:
            say_what_is_kept(session)
    finally:
        session.tell_closed()
    all_notes = [*run.get("notes", ()), *notes]
    search = dict(session.search.summary())
    folder.describe({**described, "notes": all_notes, "search": search})


def _ops_of(trials: Iterable[TrialSpec]) -> list[str]:
    """The DeepSpeed ops that the trials need, each once, by name."""
    ops: set[str] = set()
    for spec in trials:
        ops.update(spec.settings.builds)
    return sorted(ops)
