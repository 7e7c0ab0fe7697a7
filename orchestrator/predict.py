"""Predict memory and time of every trial of a sweep, and the cards that it runs on, with no GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import cli
from orchestrator.argument_types import count, sizes
from orchestrator.running.options import VerbOptions

if TYPE_CHECKING:
    from jobs.spec import TrialSpec
    from orchestrator.planning.settings import SweepConfig
    from orchestrator.storage.prices import Price


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict memory and time of the trials and print them. Returns the exit status."""
    options = command_line().parse_args(arguments)

    from orchestrator.planning.plan import plan, trials_with_ids
    from orchestrator.planning.problems import ConfigError
    from orchestrator.prediction.gpus import known_gpus, load_gpu
    from orchestrator.running.early_start import checked_config
    from orchestrator.storage.prices import read_prices
    from orchestrator.storage.user_files import refuse_used_file

    prices = {}
    try:
        if options.output is not None:
            refuse_used_file(options.output, force=options.force)
        verb_options = VerbOptions(
            config=options.config,
            trust_remote_code=options.trust_remote_code,
            allow_own_code=options.allow_own_code,
            choices=options.choices,
            gpus=options.gpus,
        )
        config = checked_config(verb_options, cli.print_note)
        if options.gpu is not None:
            load_gpu(options.gpu)
        if options.prices is not None:
            prices = read_prices(options.prices, [*known_gpus(), *options.memory])
        planned = plan(config)
        trials = trials_with_ids(planned.trials, options.trial)
        if not trials:
            reasons = dict.fromkeys(record.reason for record in planned.ruled_out)
            raise ValueError("\n".join(["no trial can run", *map(str, reasons)]))
    except (ConfigError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    if options.tune:
        return _tune(config, options, prices)
    return _predict(config, trials, options, prices)


def _predict(
    config: SweepConfig,
    trials: Sequence[TrialSpec],
    options: argparse.Namespace,
    prices: Mapping[str, Price],
) -> int:
    from orchestrator.api.predictions import on_all_cards, predicted

    _show(0, len(trials))
    if options.gpu is None:
        predictions = on_all_cards(config, trials, options.memory, prices, _show)
    else:
        predictions = predicted(config, trials, options.gpu, _show)
    if options.output is not None:
        from orchestrator.storage.tables.parquet import write_predictions

        write_predictions(predictions.rows, options.output, gpu=predictions.gpu)
    if options.json:
        cli.print_json(predictions.to_json())
    else:
        print(predictions)
    if all(prediction.device is None for prediction in predictions.predictions):
        return cli.EXIT_FAILURE
    return cli.EXIT_OK


def _tune(config: SweepConfig, options: argparse.Namespace, prices: Mapping[str, Price]) -> int:
    """Forecast what ``tune`` would find, and print it. Returns the exit status."""
    from orchestrator.api.forecasts import tune_forecast
    from orchestrator.running.background_prediction import across_cores

    with across_cores() as across:
        forecast = tune_forecast(config, options.gpu, options.memory, prices, _show, across)
    if options.json:
        cli.print_json(forecast.to_json())
    else:
        print(forecast)
    return cli.EXIT_OK if any(own.ranked for own in forecast.answers) else cli.EXIT_FAILURE


def _show(done: int, trials: int) -> None:
    """One line on a terminal's stderr, which the next one overwrites."""
    if sys.stderr.isatty():
        end = "\n" if done == trials else ""
        print(f"\r{done} of {trials} trials predicted", end=end, file=sys.stderr, flush=True)


def _size_texts(text: str) -> list[str]:
    """The texts of memory sizes, which name their cards."""
    sizes(text)
    return text.split(",")


def command_line() -> argparse.ArgumentParser:
    parser = cli.verb_parser(
        "predict", __doc__, "not one trial is predicted, or the table cannot be written"
    )
    cli.add_config(parser)
    gpu = (
        "only for this card, such as t4 or rtx_4090, or a file of doctor --calibrate; default: all"
    )
    parser.add_argument("--gpu", help=gpu)
    memory = "also for cards of this memory, one size or several"
    parser.add_argument(
        "--memory",
        type=_size_texts,
        action="extend",
        default=[],
        metavar="12GiB,24GiB",
        help=memory,
    )
    gpus = "GPUs of one node for each trial (default: resources.gpus_per_trial)"
    parser.add_argument("--gpus", type=count, metavar="N", help=gpus)
    prices = "find the cheapest card by a YAML file, as {l4: 0.8, h100: {price: 2.5, hours: 4}}"
    parser.add_argument("--prices", type=Path, metavar="FILE.yaml", help=prices)
    tune = "the fastest configuration that tune would search, for each memory"
    parser.add_argument("--tune", action="store_true", help=tune)
    parser.add_argument(
        "--trial",
        nargs="+",
        default=(),
        metavar="ID",
        help="only trials whose ids start with one of these",
    )
    cli.add_json(parser)
    parser.add_argument(
        "--output", type=Path, metavar="FILE.parquet", help="also write the rows as a table"
    )
    cli.add_force(parser)
    return parser


if __name__ == "__main__":
    cli.finish(main)
