"""Measure every configuration of a sweep and map its memory/speed frontier."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import nvml
from orchestrator.planning.config import SweepConfig, load_config
from orchestrator.planning.describe import describe
from orchestrator.planning.plan import Plan, order_by_size, plan
from orchestrator.planning.problems import ConfigError
from orchestrator.planning.quantities import duration_seconds

if TYPE_CHECKING:
    from jobs.record import TrialRecord
    from orchestrator.running.cluster import Cluster
    from orchestrator.running.store import RunFolder
    from orchestrator.search.base import Search

EXIT_OK, EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the sweep could not run, 2 the configuration is wrong, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        config = load_config(options.config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    if options.dry_run:
        has_gpu = bool(options.address or nvml.visible_uuids())
        print(describe(plan(config, has_gpu=has_gpu), config))
        return EXIT_OK
    from orchestrator.running.store import RunFolder, RunFolderBusyError

    folder = RunFolder(options.output or config.output)
    if options.resume and not folder.exists():
        print(f"{folder.path}: no run to resume", file=sys.stderr)
        return EXIT_USAGE
    try:
        with folder.locked():
            return _run(config, folder, options)
    except RunFolderBusyError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILURE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m orchestrator.sweep", description=__doc__)
    parser.add_argument("config", type=Path, help="the sweep's YAML file")
    parser.add_argument("--output", type=Path, metavar="DIR", help="run folder (default: the config's, runs/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument(
        "--time-budget", type=_duration, metavar="15m", help="end in this time; the rest is recorded as skipped"
    )
    parser.add_argument("--resume", action="store_true", help="continue a run: repeat nothing that has finished")
    parser.add_argument("--fresh", action="store_true", help="measure everything anew, also what has been measured")
    parser.add_argument("--address", help="a Ray cluster's address (default: RAY_ADDRESS, else this machine)")
    return parser


def _duration(text: str) -> float:
    try:
        return duration_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(config: SweepConfig, folder: RunFolder, options: argparse.Namespace) -> int:
    from orchestrator.results import publish
    from orchestrator.results.page.text import print_summary
    from orchestrator.running import cluster as ray_cluster
    from orchestrator.running.progress import Progress
    from orchestrator.running.session import Session

    with ray_cluster.connected(options.address) as cluster:
        planned = plan(config, has_gpu=cluster.gpus > 0)
        trials = planned.trials if cluster.gpus else order_by_size(planned.trials)
        budget = options.time_budget or (None if cluster.gpus else config.cpu.time_budget_seconds)
        earlier = _still_wanted(folder, planned, fresh=options.fresh)
        search = _search(config, trials)
        progress = Progress(len(trials), cluster.slots, config.axes_in_play, baseline=config.baseline)
        session = Session(search, folder, progress, time_budget_seconds=budget)
        progress.say(_opening(config, planned, cluster, budget, folder))
        for path in folder.unreadable:
            progress.say(f"-- {path} is not a record of this program; it is left alone")
        reused = session.reuse(earlier, (node.environment for node in cluster.nodes), resume=options.resume)
        if reused:
            progress.say(f"-- {reused} trials were measured before and are kept (--fresh measures them again)")
        for record in planned.ruled_out:
            folder.write(record)
        ops = sorted({op for spec in search.unasked() for op in spec.recipe.prepares})
        costs = ray_cluster.prepare(cluster, ops)
        folder.describe(_run_json(config, costs))
        ray_cluster.run(session, cluster, next((spec.needs for spec in trials), None))
        session.account()
    progress.say(progress.status())
    summary = publish(folder.path)
    print_summary(summary)
    return EXIT_INTERRUPTED if session.interrupted else EXIT_OK


def _search(config: SweepConfig, trials: Sequence[Any]) -> Search:
    from orchestrator.search.frontier import Frontier
    from orchestrator.search.grid import Grid

    kinds: dict[str, Callable[..., Search]] = {"grid": Grid, "frontier": Frontier}
    return kinds[config.search.kind](trials, **config.search.options)


def _still_wanted(folder: RunFolder, planned: Plan, *, fresh: bool) -> dict[str, TrialRecord]:
    """Earlier records of this plan's trials; all others are removed, for they must not appear in its report."""
    wanted = set() if fresh else {spec.trial_id for spec in planned.trials}
    earlier = folder.records()
    for trial_id in earlier.keys() - wanted:
        folder.remove(trial_id)
    return {trial_id: record for trial_id, record in earlier.items() if trial_id in wanted}


def _opening(config: SweepConfig, planned: Plan, cluster: Cluster, budget: float | None, folder: RunFolder) -> str:
    count = len(planned.trials)
    where = ", ".join(
        sorted({str(n.environment.get("gpu_model") or n.environment.get("cpu_model")) for n in cluster.nodes})
    )
    slots = f"{cluster.gpus} GPU{'s' * (cluster.gpus != 1)}" if cluster.gpus else "no GPU: measuring on the CPU"
    lines = [f"{config.name}: {count} trials, {len(planned.ruled_out)} ruled out, on {slots} ({where})"]
    if not cluster.gpus:
        lines.append(
            "   memory is then what tensors hold (and the process's resident peak), speed is this processor's;"
            " smallest trials first"
        )
    if budget is not None:
        lines.append(f"   it ends within {budget / 60:g} minutes; what has had no turn by then is recorded as skipped")
    return "\n".join([*lines, f"   writing to {folder.path}"])


def _run_json(config: SweepConfig, costs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": config.name,
        "command": shlex.join(["python", "-m", "orchestrator.sweep", *sys.argv[1:]]),
        "config": config.to_json(),
        "budgets": list(config.budgets),
        "baseline": dict(config.baseline),
        "one_time_costs": dict(costs),
        "started_at": time.time(),
    }


if __name__ == "__main__":
    sys.exit(main())
