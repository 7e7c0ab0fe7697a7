"""Recommend a measured configuration under your constraints, and write the files to train with."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import argument_types, cli
from orchestrator.analysis.objectives import OBJECTIVES

if TYPE_CHECKING:
    from orchestrator.api import Answer, Run
    from orchestrator.api.forecasts import GpuForecast


def main(arguments: Sequence[str] | None = None) -> int:
    """Recommend a configuration, print it, and export it if asked. Returns the exit status."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if options.objective == "dollars_per_million" and options.price_per_hour is None:
        parser.error("--objective dollars_per_million needs --price-per-hour")
    if options.own_file is not None and options.export is None:
        parser.error("--own-file is written with the files of --export")
    if options.longest and options.export is not None:
        parser.error("--longest names one configuration for each set of techniques: export a trial")
    if options.steps and options.objective != "samples_per_second":
        parser.error("--steps ranks by speed: it goes with no other --objective")
    run = cli.loaded(options.run, "recommend from")
    if run is None:
        return cli.EXIT_USAGE
    if options.longest:
        return _print_longest(run, options)
    return _recommend(run, options)


def _recommend(run: Run, options: argparse.Namespace) -> int:
    answer = run.recommend(
        # With its unit: a bare number of few bytes would be taken for one without.
        memory_bytes=options.memory and f"{options.memory}B",
        effective_batch=options.effective_batch,
        all_recipes=options.all_training_recipes,
        objective=options.objective,
        steps=options.steps,
        price_per_hour=options.price_per_hour,
    )
    try:
        forecasts = _gpu_forecasts(answer, options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    _print(answer, options, forecasts)
    if answer.best is None:
        return cli.EXIT_FAILURE
    if options.export is None:
        return cli.EXIT_OK
    return _export(answer, options)


def _gpu_forecasts(answer: Answer, options: argparse.Namespace) -> Sequence[GpuForecast]:
    """Empty if nothing is asked, or so many GPUs were measured. ValueError if none is possible."""
    measured = [own.gpus for own in answer.recommendation.gpu_counts]
    if options.gpus is None or options.gpus in measured or answer.best is None:
        return ()
    from orchestrator.api.forecasts import gpu_forecasts

    return gpu_forecasts(answer.run.dataset, answer.best, options.gpus, options.memory)


def command_line() -> argparse.ArgumentParser:
    parser = cli.verb_parser(
        "recommend", __doc__, "no measured configuration meets the constraints"
    )
    cli.add_run(parser)
    _add_constraints(parser)
    _add_workload(parser)
    export = "write the files to train with"
    parser.add_argument("--export", type=Path, metavar="DIR", help=export)
    own = (
        "with --export: your file of axolotl, LLaMA-Factory, ms-swift, TRL or the Trainer, of which"
        " a copy with the configuration's values is written"
    )
    parser.add_argument("--own-file", type=Path, metavar="FILE", help=own)
    reports = "with --export: the services that the training reports to (default: none)"
    parser.add_argument("--report-to", nargs="+", default=(), metavar="wandb", help=reports)
    cli.add_force(parser)
    cli.add_json(parser)
    return parser


def _add_constraints(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    memory = "the most that the configuration may take"
    add("--memory", type=argument_types.size, metavar="24GiB", help=memory)
    longest = "the longest sequences that train, for each set of techniques, instead of the fastest"
    add("--longest", action="store_true", help=longest)
    batch = "samples per optimizer step"
    add("--effective-batch", type=argument_types.count, metavar="N", help=batch)
    recipes = "rank other training recipes, too: other optimizers, adapters, weights"
    add("--all-training-recipes", action="store_true", help=recipes)
    objective = "what to be best in (default: samples_per_second)"
    steps = (
        "rank by the speed of a training of so many steps, its first step and compiling included"
    )
    add("--steps", type=argument_types.count, metavar="N", help=steps)
    gpus = "forecast what sharing it between so many GPUs brings, if that was not measured"
    add("--gpus", type=argument_types.count, metavar="N", help=gpus)
    add("--objective", choices=OBJECTIVES, default="samples_per_second", help=objective)


def _print_longest(run: Run, options: argparse.Namespace) -> int:
    from orchestrator.reporting.json_output import strict
    from orchestrator.reporting.sections import longest_context
    from orchestrator.reporting.terminal.safe_text import visible

    contexts = run.longest(
        memory=options.memory and f"{options.memory}B", all_recipes=options.all_training_recipes
    )
    if options.json:
        document = longest_context.to_json(run.dataset, contexts, options.memory)
        cli.print_json(strict(document))
    else:
        lines = longest_context.lines(run.dataset, contexts, options.memory)
        print(visible("\n".join(lines)))
    return cli.EXIT_OK if contexts else cli.EXIT_FAILURE


def _add_workload(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    price = "price of a GPU hour, for costs"
    add("--price-per-hour", type=argument_types.above_zero, metavar="P", help=price)
    samples = "size of your data set, for hours and costs"
    add("--samples", type=argument_types.count, metavar="N", help=samples)
    epochs = "passes over it (default: those of the run's own training arguments, or 1)"
    add("--epochs", type=argument_types.above_zero, metavar="N", help=epochs)


def _print(answer: Answer, options: argparse.Namespace, forecasts: Sequence[GpuForecast]) -> None:
    from orchestrator.reporting.verbs.recommendation import Workload, render
    from orchestrator.reporting.verbs.recommendation_json import to_json

    workload = None
    if options.samples:
        workload = Workload(samples=options.samples, epochs=options.epochs or 1.0)
    dataset = answer.run.dataset
    recommendation = answer.recommendation
    if options.json:
        document = to_json(dataset, dataset.main, recommendation, workload)
        cli.print_json({**document, "gpu_forecasts": list(map(asdict, forecasts))})
        return
    print(render(dataset, recommendation, workload))
    if forecasts:
        print(f"on {options.gpus} GPUs, the best is forecast from its speed on one:")
    for own in forecasts:
        print(f"  {own}")


def _export(answer: Answer, options: argparse.Namespace) -> int:
    """Write the files to train the best candidate with, and list them on stderr."""
    from orchestrator.export import NotExportableError
    from orchestrator.planning.dialects.registry import UnreadableFileError

    assert answer.best is not None
    try:
        written = answer.run.export(
            answer.best,
            options.export,
            epochs=options.epochs,
            own_file=options.own_file,
            report_to=options.report_to,
            force=options.force,
            say=cli.print_note,
        )
    except (UnreadableFileError, NotExportableError, FileExistsError, NotADirectoryError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    for path in written:
        print(path, file=sys.stderr)
    return cli.EXIT_OK


if __name__ == "__main__":
    cli.finish(main)
