"""Figures computed from recorded runs: the subcommands, each a file in tests/benchmarks/recorded.

    python -m tests.benchmarks.tables SUBCOMMAND RUN ...

A RUN is a run folder. Every figure needs its files alone: no GPU, and nothing is measured.
"""

import argparse
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RUNS = {"runs": {"type": Path, "nargs": "+", "metavar": "RUN"}}
RESULTS = Path(__file__).parents[2] / "docs" / "results"
SUBCOMMANDS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "answered": {"answers": {"type": Path, "metavar": "FILE.parquet"}},
    "false_alarms": {
        **RUNS,
        "--slower": {"type": float, "default": 0.03, "help": "planted in all rows"},
        "--alone": {"type": float, "default": 0.05, "help": "planted in one row at a time"},
    },
    "loss_faults": RUNS,
    "peers": {
        "peers": {"type": Path, "help": "a sweep of the peers"},
        "tuned": {"type": Path, "help": "what tune found on the same rows"},
    },
    "predictions": {
        "predicted": {"type": Path, "metavar": "FILE.parquet"},
        "runs": {"type": Path, "help": "a folder of run folders"},
    },
    "ranks": {
        "predicted": {"type": Path, "metavar": "FILE.parquet"},
        "runs": {"type": Path, "help": "a folder of run folders"},
    },
    "repeatability": RUNS,
    "shared_gpu": RUNS,
    "spread": {
        "runs": {"type": Path, "nargs": "?", "default": RESULTS, "help": "a folder of run folders"}
    },
    "times": {
        "predicted": {"type": Path, "metavar": "FILE.parquet"},
        **RUNS,
        "--other": {"type": Path, "required": True, "help": "the same of another card"},
    },
}
"""Module of ``tests.benchmarks.recorded``, whose function ``lines`` takes these arguments."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = command_line().parse_args(arguments)
    for line in options.lines(options):
        print(line)


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.tables")
    subparsers = parser.add_subparsers(required=True, metavar="SUBCOMMAND")
    for name, arguments in SUBCOMMANDS.items():
        module = importlib.import_module(f"tests.benchmarks.recorded.{name}")
        description = module.__doc__ or ""
        subparser = subparsers.add_parser(
            name,
            help=description.partition("\n")[0],
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for argument, options in arguments.items():
            subparser.add_argument(argument, **options)
        subparser.set_defaults(lines=module.lines)
    return parser


if __name__ == "__main__":
    main()
