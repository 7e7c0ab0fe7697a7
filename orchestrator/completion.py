"""Print a script that completes ``orchestrator`` in your shell; in bash: eval "$(orchestrator completion bash)"."""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Sequence
from pathlib import Path

import shtab

from orchestrator.cli import EXIT_OK, VERBS, epilog, finish, run_location

SHELLS = ("bash", "zsh", "fish")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0."""
    print(shtab.complete(every_verb(), command_line().parse_args(arguments).shell))
    return EXIT_OK


def command_line() -> argparse.ArgumentParser:
    """What the verb takes."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.completion",
        description=__doc__,
        epilog=epilog({}),
    )
    parser.add_argument("shell", choices=SHELLS)
    return parser


def every_verb() -> argparse.ArgumentParser:
    """``orchestrator VERB ...`` as one parser, each verb's own command line a branch of it."""
    whole = argparse.ArgumentParser(prog="orchestrator")
    branches = whole.add_subparsers()
    for verb in VERBS:
        own: argparse.ArgumentParser = pkgutil.resolve_name(f"orchestrator.{verb}:command_line")()
        branch = branches.add_parser(verb, parents=[own], add_help=False, help=own.description)
        for action in branch._get_positional_actions() + branch._get_optional_actions():
            if action.type in (Path, run_location):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return whole


if __name__ == "__main__":
    finish(main)
