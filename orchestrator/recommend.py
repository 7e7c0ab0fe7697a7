"""Say which measured configuration to train with under your constraints, and write the files for it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.cli import EXIT_OK, EXIT_USAGE, add_json, add_run, epilog, finish
from orchestrator.units import size_bytes

EXIT_NOTHING_FITS = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 with a recommendation, 1 when nothing measured keeps the constraints, 2 for a wrong call."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if options.objective == "dollars_per_million" and options.price_per_hour is None:
        parser.error("--objective dollars_per_million needs --price-per-hour")

    from orchestrator.api import load
    from orchestrator.export import NotExportableError, export_candidate
    from orchestrator.reporting.recommendation import Workload, render, to_json
    from orchestrator.storage.run_metadata import UnreadableRunError

    try:
        run = load(options.run)
    except FileNotFoundError as error:
        print(
            f"{options.run}: no records and no table to recommend from ({error})", file=sys.stderr
        )
        return EXIT_USAGE
    except (OSError, UnreadableRunError) as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    answer = run.recommend(
        memory_bytes=options.memory,
        effective_batch=options.effective_batch,
        any_training=options.any_training,
        exact=options.exact,
        objective=options.objective,
        price_per_hour=options.price_per_hour,
    )
    workload = Workload(samples=options.samples, epochs=options.epochs) if options.samples else None
    print(
        json.dumps(to_json(run, answer, workload), indent=2)
        if options.json
        else render(run, answer, workload)
    )
    if answer.best is None:
        return EXIT_NOTHING_FITS
    try:
        if options.export is not None:
            for path in export_candidate(run, answer.best, options.export, epochs=options.epochs):
                print(path, file=sys.stderr)
    except NotExportableError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    return EXIT_OK


def command_line() -> argparse.ArgumentParser:
    """What the verb takes."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.recommend",
        description=__doc__,
        epilog=epilog({EXIT_NOTHING_FITS: "nothing measured keeps the constraints"}),
    )
    add_run(parser)
    parser.add_argument(
        "--memory", type=_sized, metavar="24GiB", help="what the configuration may take"
    )
    parser.add_argument(
        "--effective-batch", type=_above_zero(int), metavar="N", help="samples per optimizer step"
    )
    parser.add_argument(
        "--exact", action="store_true", help="refuse rows whose losses are not their reference's"
    )
    parser.add_argument(
        "--any-training",
        action="store_true",
        help="rank other optimizers, adapters and weights, too",
    )
    parser.add_argument(
        "--objective", choices=OBJECTIVES, default="samples_per_second", help="what to be best in"
    )
    parser.add_argument(
        "--price-per-hour", type=_above_zero(float), metavar="P", help="of the GPU, for costs"
    )
    parser.add_argument(
        "--samples",
        type=_above_zero(int),
        metavar="N",
        help="your dataset's size, for hours and costs",
    )
    parser.add_argument(
        "--epochs",
        type=_above_zero(float),
        default=1.0,
        metavar="N",
        help="passes over it (default: 1)",
    )
    parser.add_argument("--export", type=Path, metavar="DIR", help="write the files to train with")
    add_json(parser)
    return parser


def _sized(text: str) -> int:
    try:
        return size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _above_zero(kind: Callable[[str], float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if (value := kind(text)) <= 0:
            raise argparse.ArgumentTypeError("must be above zero")
        return value

    parse.__name__ = kind.__name__  # what argparse calls a value that it cannot read
    return parse


if __name__ == "__main__":
    finish(main)
