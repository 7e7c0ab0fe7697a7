"""Write one of the shipped configurations here, to be changed and swept: quickstart by default."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator import cli
from orchestrator.planning.shipped import about, shipped_configurations, write_shipped


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a shipped configuration, or list them. Returns the exit status."""
    options = command_line().parse_args(arguments)
    if options.list:
        _print_list(as_json=options.json)
        return cli.EXIT_OK
    target = options.output or Path(f"{options.name}.yaml")
    try:
        written = write_shipped(options.name, target, force=options.force)
    except (FileExistsError, LookupError) as error:
        print(*error.args, file=sys.stderr)
        return cli.EXIT_USAGE
    if options.json:
        cli.print_json({"written": [str(path) for path in written]})
    else:
        _print_next_steps(written, target)
    return cli.EXIT_OK


def command_line() -> argparse.ArgumentParser:
    """The parser of the verb's command line."""
    parser = cli.verb_parser("init", __doc__, "the file cannot be written")
    add = parser.add_argument
    add("name", nargs="?", default="quickstart", metavar="NAME", help="a shipped configuration")
    add("--list", action="store_true", help="list the shipped configurations and stop")
    add("--output", type=Path, metavar="FILE.yaml", help="where to write it (default: NAME.yaml)")
    add("--force", action="store_true", help="write over files of the same names")
    cli.add_json(parser)
    return parser


def _print_list(*, as_json: bool) -> None:
    shipped = shipped_configurations()
    if as_json:
        cli.print_json({name: about(path) for name, path in shipped.items()})
        return
    width = max(map(len, shipped))
    for name, path in shipped.items():
        print(f"{name:<{width}}  {about(path)}")


def _print_next_steps(written: Sequence[Path], target: Path) -> None:
    for path in written:
        print(f"wrote {path}")
    if not written:
        print(f"{target} is there already, unchanged")
    print(f"next: python -m orchestrator.sweep {target} --dry-run")


if __name__ == "__main__":
    cli.finish(main)
