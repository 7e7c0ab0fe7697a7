"""Write a configuration here: a shipped one, or one made of the files of another trainer."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator import cli


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a configuration, or list the shipped ones. Returns the exit status."""
    options = command_line().parse_args(arguments)

    from orchestrator.planning.dialects.registry import UnreadableFileError

    if options.list:
        _print_list(as_json=options.json)
        return cli.EXIT_OK
    try:
        return _translate(options) if options.files else _write_shipped(options)
    except (FileExistsError, LookupError, UnreadableFileError) as error:
        print(*error.args, file=sys.stderr)
        return cli.EXIT_USAGE


def command_line() -> argparse.ArgumentParser:
    parser = cli.verb_parser("init", __doc__, "the file cannot be written")
    add = parser.add_argument
    add("name", nargs="?", default="quickstart", metavar="NAME", help="a shipped configuration")
    add("--list", action="store_true", help="list the shipped configurations and stop")
    others = (
        "instead, files of one training by axolotl, LLaMA-Factory, ms-swift, TRL or the Trainer: "
        "YAML, JSON, or a shell script with the command; also of DeepSpeed and accelerate"
    )
    add("--from", dest="files", nargs="+", type=Path, metavar="FILE", help=others)
    add("--model", metavar="ID", help="with --from: the model, if no file names it")
    shape = "with --from: a config.json, for a model whose shape is not known here"
    add("--model-config", type=Path, metavar="FILE", help=shape)
    add("--output", type=Path, metavar="FILE.yaml", help="where to write it (default: NAME.yaml)")
    add("--force", action="store_true", help="write over files of the same names")
    cli.add_json(parser)
    return parser


def _write_shipped(options: argparse.Namespace) -> int:
    from orchestrator.planning.shipped import write_shipped

    target = options.output or Path(f"{options.name}.yaml")
    written = write_shipped(options.name, target, force=options.force)
    if options.json:
        cli.print_json({"written": [str(path) for path in written]})
    else:
        _print_next_steps(written, target)
    return cli.EXIT_OK


def _translate(options: argparse.Namespace) -> int:
    from orchestrator.planning.dialects.translate import translated, write
    from orchestrator.reporting.verbs import translation as words

    result = translated(options.files, model=options.model, model_config=options.model_config)
    target = options.output or Path(f"{options.files[0].stem}_sweep.yaml")
    is_whole = not result.missing and not result.obstacles
    if is_whole:
        write(result, words.table(result), target, force=options.force)
    if options.json:
        cli.print_json({"written": [str(target)] if is_whole else [], **words.to_json(result)})
    else:
        print(words.table(result))
    if is_whole:
        if not options.json:
            _print_next_steps([target], target)
        return cli.EXIT_OK
    for obstacle in result.obstacles:
        print(f"nothing was written: {words.line(obstacle)}", file=sys.stderr)
    if result.missing:
        print(f"nothing was written: {result.missing}", file=sys.stderr)
    return cli.EXIT_USAGE


def _print_list(*, as_json: bool) -> None:
    from orchestrator.planning.shipped import about, shipped_configurations

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
