"""Print a script that completes ``orchestrator`` in your shell: bash, zsh or fish.

In bash: eval "$(orchestrator completion bash)".
"""

import argparse
import pkgutil
from collections.abc import Sequence
from pathlib import Path

import shtab

from orchestrator import cli
from orchestrator.argument_types import run_location

SHELLS = ("bash", "zsh", "fish")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the completion script. Returns the exit status 0."""
    options = command_line().parse_args(arguments)
    print(shtab.complete(all_verbs(), options.shell))
    return cli.EXIT_OK


def command_line() -> argparse.ArgumentParser:
    parser = cli.verb_parser("completion", __doc__)
    parser.add_argument("shell", choices=SHELLS)
    return parser


def all_verbs() -> argparse.ArgumentParser:
    """``orchestrator VERB ...`` as one parser, with each verb's command line as a subparser."""
    parser = argparse.ArgumentParser(prog="orchestrator")
    subparsers = parser.add_subparsers()
    for verb in cli.VERBS:
        of_verb: argparse.ArgumentParser = pkgutil.resolve_name(
            f"orchestrator.{verb}:command_line"
        )()
        # The subparser is built from the verb's own parser, so completion never differs from it.
        subparser = subparsers.add_parser(
            verb, parents=[of_verb], add_help=False, help=of_verb.description
        )
        _complete_files(subparser)
    return parser


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Let the shell complete file names for the arguments that take a path."""
    for action in parser._get_positional_actions() + parser._get_optional_actions():
        # Both types stand for a path on this machine.
        if action.type in (Path, run_location):
            action.complete = shtab.FILE  # type: ignore[attr-defined]


if __name__ == "__main__":
    cli.finish(main)
