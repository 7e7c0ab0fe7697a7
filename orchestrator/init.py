"""Write one of the shipped configurations here, to be changed and swept: quickstart by default."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator import cli
from orchestrator.planning.problems import advice
from orchestrator.storage.layout import written_beside
from orchestrator.storage.user_files import refuse_used_file

SCHEMA = "schema.json"
_DEFAULT = "quickstart"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a shipped configuration, or list them. Returns the exit status.

    0 written or listed, 1 the file cannot be written, 2 there is no such configuration or a file of
    its name exists already.
    """
    options = command_line().parse_args(arguments)
    shipped = shipped_configurations()
    if options.list:
        _print_list(shipped, as_json=options.json)
        return cli.EXIT_OK
    if options.name not in shipped:
        hint = advice(options.name, list(shipped))
        print(f'no configuration "{options.name}"; {hint}', file=sys.stderr)
        return cli.EXIT_USAGE
    target = options.output or Path(f"{options.name}.yaml")
    try:
        written = write_configuration(shipped[options.name], target, force=options.force)
    except FileExistsError as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    _print_written(written, target, as_json=options.json)
    return cli.EXIT_OK


def _print_written(written: Sequence[Path], target: Path, *, as_json: bool) -> None:
    """Print which files were written, and what to do with them."""
    if as_json:
        print(json.dumps({"written": [str(path) for path in written]}, indent=2))
    else:
        _print_next_steps(written, target)


def command_line() -> argparse.ArgumentParser:
    """The parser of the verb's command line."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.init",
        description=__doc__,
        epilog=cli.epilog({cli.EXIT_FAILURE: "the file cannot be written"}),
    )
    add = parser.add_argument
    add("name", nargs="?", default=_DEFAULT, metavar="NAME", help="a shipped configuration")
    add("--list", action="store_true", help="list the shipped configurations and stop")
    add("--output", type=Path, metavar="FILE.yaml", help="where to write it (default: NAME.yaml)")
    add("--force", action="store_true", help="write over files of the same names")
    cli.add_json(parser)
    return parser


def configurations_folder() -> Path:
    """The folder of shipped configurations: inside an installed package, beside it in a checkout.

    Raises FileNotFoundError if there is none.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / SCHEMA).exists():
            return folder
    raise FileNotFoundError(f"{package} was installed without its configurations")


def shipped_configurations() -> dict[str, Path]:
    """Name of each shipped configuration -> its file, in the order of the names."""
    return {path.stem: path for path in sorted(configurations_folder().glob("*.yaml"))}


def write_configuration(source: Path, target: Path, *, force: bool) -> tuple[Path, ...]:
    """Copy a configuration, and beside it the schema that editors use for completion.

    Returns the files that changed. Raises FileExistsError if a different file has either name,
    unless ``force``.
    """
    copies = {target: source, target.parent / SCHEMA: source.parent / SCHEMA}
    contents = {path: original.read_text(encoding="utf-8") for path, original in copies.items()}
    # Check both files before writing either. A file that is already equal stays as it is.
    changed = [path for path, content in contents.items() if not _has_content(path, content)]
    for path in changed:
        refuse_used_file(path, force=force)
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in changed:
        with written_beside(path) as partial:
            partial.write_text(contents[path], encoding="utf-8")
    return tuple(changed)


def _has_content(path: Path, content: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == content
    except (OSError, UnicodeDecodeError):
        return False


def about(path: Path) -> str:
    """What a configuration is for: its first comment, except the line for editors."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") and "yaml-language-server" not in line:
            return line.removeprefix("# ")
    return ""


def _print_list(shipped: dict[str, Path], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: about(path) for name, path in shipped.items()}, indent=2))
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
