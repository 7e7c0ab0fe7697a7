"""Predict the memory of every trial of a sweep, with no GPU."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.spec import TrialSpec
from orchestrator.cli import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, add_config, add_json, epilog, finish
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.planning.problems import ConfigError
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.libraries import without_gpus
from orchestrator.reporting.prediction import labels, row, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the configuration, the GPU or a trial's name is wrong."""
    options = command_line().parse_args(arguments)
    try:
        config, gpu = (
            load_config(options.config, trust_remote_code=options.trust_remote_code),
            load_gpu(options.gpu),
        )
        trials = _chosen(plan(config).trials, options.trial)
    except (ConfigError, ValueError) as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    with without_gpus():
        predictions = predict(trials, gpu)
    if options.output is not None:
        from orchestrator.storage.tables.predictions import write_predictions

        write_predictions(
            [row(prediction) for prediction in predictions], options.output, gpu=gpu.name
        )
    if options.json:
        print(json.dumps([row(prediction) for prediction in predictions], indent=1))
    else:
        print(table(predictions, labels(predictions, config)))
    return EXIT_OK


def command_line() -> argparse.ArgumentParser:
    """What the verb takes."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.predict",
        description=__doc__,
        epilog=epilog({EXIT_FAILURE: "the table cannot be written"}),
    )
    add_config(parser)
    parser.add_argument("--gpu", default="h200", help="whose constants to use (default: h200)")
    parser.add_argument(
        "--trial",
        nargs="+",
        default=(),
        metavar="ID",
        help="only trials whose identifiers begin so",
    )
    add_json(parser)
    parser.add_argument(
        "--output", type=Path, metavar="FILE.parquet", help="also write the rows as a table"
    )
    return parser


def _chosen(trials: Sequence[TrialSpec], names: Sequence[str]) -> list[TrialSpec]:
    """The trials whose identifiers begin so. Raises ValueError for a name that none has."""
    if unknown := [
        name for name in names if not any(trial.trial_id.startswith(name) for trial in trials)
    ]:
        raise ValueError(
            f"no trial {', '.join(unknown)} in this plan; without --trial all are listed"
        )
    return [trial for trial in trials if not names or trial.trial_id.startswith(tuple(names))]


if __name__ == "__main__":
    finish(main)
