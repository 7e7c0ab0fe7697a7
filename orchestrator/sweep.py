"""Measure every configuration of a sweep and map its memory/speed frontier."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from jobs.node import nvml
from orchestrator import cli
from orchestrator.planning.config import SweepConfig, load_config
from orchestrator.planning.loggers import TrackerError, refuse_missing
from orchestrator.planning.plan import Plan, order_by_size, plan
from orchestrator.planning.problems import ConfigError
from orchestrator.reporting.plan import describe, to_json
from orchestrator.running import ray_address
from orchestrator.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from jobs.spec import TrialSpec
    from orchestrator.running.gpu_screening import Fitness
    from orchestrator.running.session import Session
    from orchestrator.search.base import Search

    Searching = Callable[..., Search]
    """Of the planned trials; the search's own options by keyword."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the sweep could not run, 2 the configuration is wrong, 130 interrupted."""
    options = command_line().parse_args(arguments)
    try:
        config = load_config(options.config, trust_remote_code=options.trust_remote_code)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    if options.dry_run or options.predict:
        return _show_plan(config, options)
    try:
        refuse_missing(config.trackers)
        searching = _search(config)
    except (ImportError, TrackerError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    with ray_address.preloading(options.address, config.resources.cpus_per_trial):
        from orchestrator.reporting.publish import publish

        place = options.output or config.output
        run = functools.partial(_run, config, searching, options)
        return cli.holding(place, run, resume=options.resume, render=publish)


def command_line() -> argparse.ArgumentParser:
    """What the verb takes."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.sweep",
        description=__doc__,
        epilog=cli.epilog({cli.EXIT_FAILURE: "the sweep could not run"}),
    )
    cli.add_options(parser, output="the config's, runs/NAME")
    predict = "print the plan with the memory that its trials will take of this GPU, and stop (default: h200)"
    parser.add_argument("--predict", nargs="?", const="h200", metavar="GPU", help=predict)
    return parser


def _show_plan(config: SweepConfig, options: argparse.Namespace) -> int:
    """Print the plan, and where asked what its trials will take of a GPU's memory."""
    from orchestrator.prediction.estimator import predict
    from orchestrator.prediction.gpus import load_gpu
    from orchestrator.prediction.libraries import without_gpus
    from orchestrator.reporting.prediction import labels, row, table

    try:
        gpu = load_gpu(options.predict) if options.predict else None
    except ValueError as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    planned = plan(config, has_gpu=bool(gpu or options.address or nvml.visible_uuids()))
    told = to_json(planned, config)
    if not options.json:
        print(describe(planned, config))
    if gpu is not None:
        with without_gpus():
            predictions = predict(planned.trials, gpu)
        told["predicted"] = [row(prediction) for prediction in predictions]
        if not options.json:
            print(
                f"\nPredicted of one {gpu.name}, GiB\n{table(predictions, labels(predictions, config))}"
            )
    if options.json:
        print(json.dumps(told, indent=2))
    return cli.EXIT_OK


def _run(
    config: SweepConfig, searching: Searching, options: argparse.Namespace, folder: RunFolder
) -> int:
    """Measure; where nodes have joined meanwhile, go on with what their GPU models lack."""
    from orchestrator.reporting.publish import publish
    from orchestrator.reporting.terminal import print_summary
    from orchestrator.running import gpu_screening

    measured, goes_on, end = set[str](), True, time.monotonic() + (options.time_budget or math.inf)
    while goes_on:
        with (
            gpu_screening.reached(options.address, config.resources) as fit,
            contextlib.ExitStack() as beside,
        ):
            models = {part.hardware for part in fit.cluster.by_hardware()}
            if models <= measured:
                break
            told = _foretold(searching, config, beside) if fit.cluster.gpus else searching
            session, has_grown = _measure(config, told, options, folder, fit)
        goes_on = session.begins_anew or (has_grown and not session.cut_short)
        measured |= set() if session.begins_anew else models
        left = options.time_budget and max(1.0, end - time.monotonic())
        options = argparse.Namespace(
            **{**vars(options), "resume": True, "fresh": False, "time_budget": left}
        )
    print_summary(publish(folder.path), as_json=options.json)
    return cli.EXIT_INTERRUPTED if session.interrupted else cli.EXIT_OK


def _measure(
    config: SweepConfig,
    searching: Searching,
    options: argparse.Namespace,
    folder: RunFolder,
    fit: Fitness,
) -> tuple[Session, bool]:
    """The session once it has ended, and whether the cluster has grown meanwhile."""
    from orchestrator.running import lifecycle
    from orchestrator.running.event_log import EventLog
    from orchestrator.running.progress import Progress
    from orchestrator.running.prometheus import Metrics
    from orchestrator.running.session import Session
    from orchestrator.search.per_gpu_model import for_model, side_by_side

    cluster = fit.cluster
    planned = plan(config, has_gpu=cluster.gpus > 0)
    if cluster.gpus:
        searching = _with_follow_ups(searching, config)
    trials = planned.trials if cluster.gpus else order_by_size(planned.trials)
    models = cluster.slots_by_model()
    budget = options.time_budget or (None if cluster.gpus else config.cpu.time_budget_seconds)
    wanted = {spec.trial_id for model in models for spec in for_model(trials, model)}
    is_wanted = functools.partial(_is_wanted, planned=wanted)
    earlier = lifecycle.still_wanted(folder, is_wanted, fresh=options.fresh, models=models)
    search = side_by_side({model: searching(for_model(trials, model)) for model in models}, models)
    stream = sys.stderr if options.json else sys.stdout
    progress = Progress(
        len(wanted), cluster.slots, config.axes_in_play, baseline=config.baseline, stream=stream
    )
    watchers = (EventLog(folder.path), Metrics(config.name, len(wanted)))
    session = Session(
        search, folder, progress, time_budget_seconds=budget, watchers=watchers, may_begin_anew=True
    )
    progress.say(f"{_count(config, planned, models)}, on {lifecycle.slots_in_words(cluster)}")
    lifecycle.show(progress, fit.notes)
    lifecycle.show(progress, lifecycle.opening(cluster, folder, budget))
    lifecycle.show(progress, lifecycle.reuse(session, earlier, cluster, resume=options.resume))
    for record in planned.ruled_out:
        folder.write(record)
    needs = next((spec.needs for spec in trials), None)
    run = {**lifecycle.run_json(config, "sweep"), **fit.to_json(), "planned": len(wanted)}
    has_grown = lifecycle.measure(
        session,
        cluster,
        folder,
        like=search.unasked(),
        needs=needs,
        run=run,
        trackers=config.trackers,
    )
    progress.say(progress.status())
    return session, has_grown


def _foretold(searching: Searching, config: SweepConfig, beside: contextlib.ExitStack) -> Searching:
    """A frontier search hears what memory its trials will need, as that becomes known."""
    if config.search.kind != "frontier":
        return searching
    from orchestrator.running.background_prediction import Foretelling

    foretelling = beside.enter_context(Foretelling())
    return lambda trials: searching(
        trials, predicted=foretelling.of(trials, trials[0].gpu_model if trials else "")
    )


def _with_follow_ups(searching: Searching, config: SweepConfig) -> Searching:
    from orchestrator.search.follow_ups import FollowUps

    follow = functools.partial(
        FollowUps, wanted=config.follow_ups, budgets=config.budgets, baseline=config.baseline
    )
    return lambda trials: follow(searching(trials))


def _is_wanted(spec: TrialSpec, planned: set[str]) -> bool:
    """Whether a trial is planned, or follows one that is."""
    return (spec.follow_up.follows if spec.follow_up else spec.trial_id) in planned


def _count(config: SweepConfig, planned: Plan, models: Collection[str]) -> str:
    each = f" on each of {len(models)} GPU models" if len(models) > 1 else ""
    return f"{config.name}: {len(planned.trials)} trials{each}, {len(planned.ruled_out)} ruled out"


def _search(config: SweepConfig) -> Searching:
    """The config's search, its options given. Raises ImportError, in a sentence, where its package is missing."""
    from orchestrator.search.frontier.search import Frontier
    from orchestrator.search.grid import Grid

    options = config.search.options
    match config.search.kind:
        case "frontier":
            return functools.partial(Frontier, **options)
        case "optuna":
            from orchestrator.search.optuna import Optuna

            return functools.partial(Optuna, **options)
        case _:
            return Grid


if __name__ == "__main__":
    cli.finish(main)
