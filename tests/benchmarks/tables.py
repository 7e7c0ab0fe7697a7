"""Figures computed from recorded runs: the subcommands, each a file in tests/benchmarks/recorded.

    python -m tests.benchmarks.tables SUBCOMMAND RUN ...

A RUN is a run folder. Every figure needs its files alone: no GPU, and nothing is measured.
"""

import argparse
import importlib
from collections.abc import Sequence

FOLDER = "tests.benchmarks.recorded"
SUBCOMMANDS = (
    "by_hand",
    "false_alarms",
    "pace",
    "paired",
    "predictions",
    "repeatability",
    "shared_gpu",
    "spread",
)
"""Modules of the folder. Each has ``add_arguments(parser)`` and ``lines(options)``."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = command_line().parse_args(arguments)
    for line in options.lines(options):
        print(line)


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.tables")
    subparsers = parser.add_subparsers(required=True, metavar="SUBCOMMAND")
    for name in SUBCOMMANDS:
        module = importlib.import_module(f"{FOLDER}.{name}")
        description = module.__doc__ or ""
        subparser = subparsers.add_parser(
            name,
            help=description.partition("\n")[0],
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(lines=module.lines)
    return parser


if __name__ == "__main__":
    main()
