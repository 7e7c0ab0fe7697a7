"""Predict the memory of every trial of a sweep, with no GPU."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator import cli
from orchestrator.planning.plan import plan, trials_with_ids
from orchestrator.planning.problems import ConfigError
from orchestrator.prediction.gpus import load_gpu
from orchestrator.running.early_start import checked_config
from orchestrator.running.options import VerbOptions
from orchestrator.storage.user_files import refuse_used_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict the memory of the trials and print it. Returns the exit status."""
    options = command_line().parse_args(arguments)

    from orchestrator.api.predictions import predicted

    try:
        if options.output is not None:
            refuse_used_file(options.output, force=options.force)
        verb_options = VerbOptions(
            config=options.config,
            trust_remote_code=options.trust_remote_code,
            allow_own_code=options.allow_own_code,
        )
        config = checked_config(verb_options, cli.print_note)
        load_gpu(options.gpu)
        trials = trials_with_ids(plan(config).trials, options.trial)
    except (ConfigError, ValueError, FileExistsError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    predictions = predicted(config, trials, options.gpu)
    if options.output is not None:
        from orchestrator.storage.tables.predictions import write_predictions

        write_predictions(predictions.rows, options.output, gpu=predictions.gpu)
    if options.json:
        cli.print_json(predictions.rows)
    else:
        print(predictions)
    if trials and all(prediction.device is None for prediction in predictions.predictions):
        return cli.EXIT_FAILURE
    return cli.EXIT_OK


def command_line() -> argparse.ArgumentParser:
    """The parser of the verb's command line."""
    parser = cli.verb_parser(
        "predict", __doc__, "not one trial is predicted, or the table cannot be written"
    )
    cli.add_config(parser)
    gpu = "h200 (default), another card such as t4 or rtx_4090, or a file of doctor --calibrate"
    parser.add_argument("--gpu", default="h200", help=gpu)
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
