"""The life of a run on one cluster, for every measuring verb: from earlier records to run.json."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import Needs, TrialSpec
from orchestrator.planning.settings import SweepConfig
from orchestrator.running.background_prediction import EpochForecasts
from orchestrator.running.cluster import prepare, run_trials
from orchestrator.running.earlier_records import EarlierRecords, refuse_without_gpu, sort_earlier
from orchestrator.running.early_start import Start
from orchestrator.running.gpu_screening import Screening
from orchestrator.running.nodes import Cluster, ClusterError
from orchestrator.running.observers import Observer
from orchestrator.running.observers.loggers import logger_observers
from orchestrator.running.observers.progress import Progress, live_line
from orchestrator.running.session import Session
from orchestrator.search.base import Search
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import count, duration


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """What a verb measures on one cluster."""

    config: SweepConfig
    verb: str
    headline: str
    """The first line that is printed, which names the slots."""
    search: Search
    is_wanted: Callable[[TrialSpec], bool]
    """Whether the search may ask for a trial, so that its earlier record is kept."""
    axes: Sequence[str]
    """The axes that labels name."""
    needs: Needs | None
    """What the configuration wants a trial to reserve."""
    to_build_for: Sequence[TrialSpec] = ()
    """Trials whose DeepSpeed operators are built first. Planned trials need not be named."""
    planned: int | None = None
    """Number of planned trials; None if the search creates them while it runs."""
    ruled_out: Sequence[TrialRecord] = ()
    observers: Sequence[Observer] = ()
    """Observers besides progress and loggers."""
    spent_seconds: float = 0.0
    """What other GPU models have used of the time budget."""
    on_slots: Callable[[Mapping[str, int]], object] | None = None
    """Called with GPU model -> number of slots, when it changes."""


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


def _time_budget_seconds(work: RunRequest, start: Start, cluster: Cluster) -> float | None:
    """What is left of the command's time budget, or without a GPU of the file's, if any."""
    budget = start.options.time_budget_seconds
    if budget is None and not cluster.gpus:
        budget = work.config.cpu_fallback.time_budget_seconds
    return None if budget is None else max(0.0, budget - work.spent_seconds)


def measure(work: RunRequest, screening: Screening, start: Start, folder: RunFolder) -> Session:
    """Run the search on the cluster until every trial has its record; the closed session. Raises
    NoSuchGpuError for rows of GPUs without a GPU, LoggerError, RunFolderError or ClusterError."""
    options, cluster = start.options, screening.cluster
    refuse_without_gpu(folder, cluster, fresh=options.fresh)
    hardware = cluster.hardware_by_model()
    earlier = sort_earlier(folder, work.is_wanted, fresh=options.fresh, hardware=hardware)
    budget = _time_budget_seconds(work, start, cluster)
    # Loggers first. If one refuses to start, the verb ends before anything is printed.
    loggers = logger_observers(work.config.loggers, folder, work.config.name, work.axes)
    stream = sys.stderr if options.as_json else sys.stdout
    progress = Progress(work.planned, work.axes, stream=stream)
    forecasts = EpochForecasts(next(iter(hardware.values()), "") if cluster.gpus else "")
    session = Session(
        work.search,
        folder,
        [progress, *work.observers, *loggers, forecasts],
        time_budget_seconds=budget,
    )
    for line in (work.headline, *screening.notes, *_opening_lines(work, cluster, folder, budget)):
        progress.print(line)
    for sentence in earlier.sentences(cluster.environments):
        progress.message(sentence)
    session.reuse(earlier.wanted, cluster.environments, resume=options.resume)
    _print_kept_count(session)
    # The records of combinations that cannot run are written before the first trial.
    for record in work.ruled_out:
        folder.write(record)
    with forecasts, live_line(progress):
        _run_to_end(session, work, cluster, folder, _described(work, screening, earlier))
    return session


def _described(work: RunRequest, screening: Screening, earlier: EarlierRecords) -> dict[str, Any]:
    """The content of ``run.json`` before the first trial."""
    run = run_description(work.config, work.verb) | screening.to_json()
    run["notes"] = [*screening.notes, *earlier.sentences()]
    return run if work.planned is None else {**run, "planned": work.planned}


def _run_to_end(
    session: Session, work: RunRequest, cluster: Cluster, folder: RunFolder, run: dict[str, Any]
) -> None:
    reused_at_first = session.reused
    try:
        folder.describe({**run, "finished": False})
        # Operators are built once for all trials, so that no trial's time includes the build.
        to_build_for = work.to_build_for if work.planned is None else session.pending
        ops = {name for spec in to_build_for for name in spec.settings.builds}
        run["one_time_costs"] = prepare(cluster, sorted(ops))
        folder.describe({**run, "finished": False})
        try:
            run["notes"] += run_trials(session, cluster, work.needs, on_slots=work.on_slots)
        except ClusterError:
            session.write_missing_records()
            raise
        session.write_missing_records()
        # A search that creates trials while it runs may have asked for more earlier records.
        if session.reused > reused_at_first:
            _print_kept_count(session)
    finally:
        session.tell_closed()
    folder.describe({**run, "search": dict(session.search.summary())})


def _opening_lines(
    work: RunRequest, cluster: Cluster, folder: RunFolder, time_budget_seconds: float | None
) -> Iterator[str]:
    if not cluster.gpus:
        yield (
            "   without a GPU, memory is that of live tensors and the process's resident peak,"
            " and speed is this processor's"
        )
    if time_budget_seconds is not None:
        limit = duration(time_budget_seconds)
        yield f"   ends within {limit}; trials not started by then are skipped"
    yield f"   writing to {folder.path}"
    for path in folder.unreadable:
        yield (
            f"-- {path} is not a record of this program; it is left alone, or moves to superseded/"
            " if its trial is measured"
        )
    if not cluster.gpus and work.planned is not None and work.config.search.kind == "grid":
        yield "   the smallest trials run first"


def _print_kept_count(session: Session) -> None:
    if session.reused:
        kept = count(session.reused, "trial")
        session.message(f"{kept} measured before: kept (--fresh measures them again)")


def slots_in_words(cluster: Cluster) -> str:
    """``2 GPUs (NVIDIA H200)``, or a note that there is no GPU."""
    gpus = count(cluster.gpus, "GPU") if cluster.gpus else "no GPU: measuring on the CPU"
    return f"{gpus} ({cluster.hardware})"
