"""Measure every configuration of a sweep and map its memory/speed frontier."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from jobs.node import nvml
from orchestrator import cli
from orchestrator.callable_verb import make_callable
from orchestrator.measuring import with_early_start
from orchestrator.planning.config import SweepConfig, load_config
from orchestrator.planning.loggers import LoggerError, refuse_missing
from orchestrator.planning.plan import Plan, plan
from orchestrator.planning.problems import ConfigError
from orchestrator.reporting.plan import describe, to_json
from orchestrator.running.options import RunOptions
from orchestrator.running.ray_address import is_elsewhere
from orchestrator.storage.location import Location

if TYPE_CHECKING:
    from orchestrator.planning.prechecks.checks import ModelFacts
    from orchestrator.running.reports import CheckModel
    from orchestrator.storage.run_folder import RunFolder

_DEFAULT_GPU = "h200"


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepOptions(RunOptions):
    """What the command line asks for."""

    config: Path
    trust_remote_code: bool = False
    allow_own_code: bool = False
    output: Location | None = None
    """None: the output folder that the configuration names."""
    dry_run: bool = False
    predict: str | None = None
    """The GPU to predict the plan's memory for; None: predict nothing."""

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        """The options of a parsed command line."""
        return cls(
            config=arguments.config,
            trust_remote_code=arguments.trust_remote_code,
            allow_own_code=arguments.allow_own_code,
            output=arguments.output,
            dry_run=arguments.dry_run,
            predict=arguments.predict,
            address=arguments.address,
            time_budget_seconds=arguments.time_budget,
            resume=arguments.resume,
            fresh=arguments.fresh,
            as_json=arguments.json,
            force=arguments.force,
        )

    @property
    def is_plan_only(self) -> bool:
        """Whether the verb only prints the plan, and measures nothing."""
        return self.dry_run or self.predict is not None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sweep, or print its plan. Returns the exit status.

    0 done, 1 the sweep could not run or no trial ended ok, 2 the configuration is wrong,
    130 interrupted.
    """
    # A wrong configuration ends the verb before Ray or a GPU is touched.
    options = SweepOptions.from_arguments(command_line().parse_args(arguments))
    try:
        config = load_config(
            options.config,
            trust_remote_code=options.trust_remote_code,
            allow_own_code=options.allow_own_code,
        )
        if not options.is_plan_only:
            refuse_missing(config.loggers)
        cli.print_notes(config.notes)
        cli.check_files(config, address=options.address, asks_hub=not options.is_plan_only)
        if options.is_plan_only:
            return _show_plan(config, options)
        return _measure(config, options)
    except (ConfigError, LoggerError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE


def _measure(config: SweepConfig, options: SweepOptions) -> int:
    """Run the sweep in its folder. Returns the exit status."""
    output = options.output or config.output
    return with_early_start(config, options, output, partial(_run, config, options))


def command_line() -> argparse.ArgumentParser:
    """The parser of the verb's command line."""
    failure = "the sweep could not run, or no trial ended ok"
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.sweep",
        description=__doc__,
        epilog=cli.epilog({cli.EXIT_FAILURE: failure}),
    )
    cli.add_options(parser, output="the config's, runs/NAME")
    predict = (
        "print the plan with the memory that its trials are predicted to take of this GPU, and"
        f" stop (default: {_DEFAULT_GPU})"
    )
    parser.add_argument("--predict", nargs="?", const=_DEFAULT_GPU, metavar="GPU", help=predict)
    return parser


def _run(
    config: SweepConfig,
    options: SweepOptions,
    folder: RunFolder,
    check_model: CheckModel,
) -> int:
    """Run the sweep, write its report, and print the summary. Returns the exit status."""
    from orchestrator.reporting.publish import publish
    from orchestrator.reporting.terminal.summary import print_summary
    from orchestrator.running.sweep_run import run_sweep

    end = run_sweep(config, options, folder, check_model=check_model)
    # Write the report even if the sweep failed: the finished rows are worth reading.
    print_summary(publish(folder.path), as_json=options.as_json)
    if end.is_interrupted:
        return cli.EXIT_INTERRUPTED
    if end.failure:
        print(end.failure, file=sys.stderr)
        return cli.EXIT_FAILURE
    return cli.EXIT_OK


def _show_plan(config: SweepConfig, options: SweepOptions) -> int:
    """Print the plan. With --predict, also print the predicted memory of its trials."""
    has_gpu = bool(options.predict or nvml.visible_uuids()) or is_elsewhere(options.address)
    planned = plan(config, has_gpu=has_gpu)
    facts = cli.model_facts(config, planned)
    predicted: _Predicted | None = None
    if options.predict is not None:
        try:
            predicted = _predicted(planned, config, options.predict)
        except ValueError as error:
            print(error, file=sys.stderr)
            return cli.EXIT_USAGE
    if options.as_json:
        print(json.dumps(_plan_json(planned, config, facts, predicted), indent=2))
        return cli.EXIT_OK
    print(describe(planned, config, facts.lines()))
    if predicted is not None:
        print(f"\n{predicted.table}")
    return cli.EXIT_OK


def _plan_json(
    planned: Plan, config: SweepConfig, facts: ModelFacts, predicted: _Predicted | None
) -> dict[str, Any]:
    """The plan, the model's size, and the predicted memory if it was asked for."""
    document = {**to_json(planned, config), "model": facts.to_json()}
    if predicted is not None:
        document["predicted"] = predicted.rows
    return document


class _Predicted(NamedTuple):
    """The trials' predicted memory, as JSON values and as text."""

    rows: list[Any]
    table: str


def _predicted(planned: Plan, config: SweepConfig, gpu_name: str) -> _Predicted:
    """The prediction for a GPU model. Raises ValueError if the GPU has no constants."""
    from orchestrator.prediction.estimator import predict
    from orchestrator.prediction.gpus import load_gpu
    from orchestrator.prediction.libraries import without_gpus
    from orchestrator.reporting.prediction import labels, row, table

    gpu = load_gpu(gpu_name)
    with without_gpus():
        predictions = predict(planned.trials, gpu)
    text = table(predictions, labels(predictions, config))
    rows = [row(prediction) for prediction in predictions]
    return _Predicted(rows, f"Predicted for {gpu.name}, GiB\n{text}")


make_callable(__name__)

if __name__ == "__main__":
    cli.finish(main)
