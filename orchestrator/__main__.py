"""``orchestrator VERB ...``: every verb as one command; alone, it lists them."""

import ast
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

from orchestrator.cli import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, VERBS, epilog, finish
from orchestrator.distribution import tool_version


def verbs() -> Mapping[str, str]:
    """Verb -> its one-line summary, read from the module's docstring without importing it."""
    folder = Path(__file__).parent
    return {verb: _line(folder / f"{verb}.py") for verb in VERBS}


def _line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split()).partition(":")[0].rstrip(".")


def usage() -> str:
    """The text of ``--help``: every verb with its summary."""
    summaries = verbs()
    width = max(map(len, summaries))
    lines = ["usage: orchestrator VERB [-h] ... | --version", ""]
    for verb, summary in summaries.items():
        lines.append(f"  {verb:<{width}}  {summary}")
    about = "VERB --help says more. " + epilog({EXIT_FAILURE: "failed"})
    return "\n".join((*lines, "", about))


def main() -> int:
    """Run the verb that the command line names, or list the verbs. Returns the exit status: 0 after
    a list of verbs, 2 if there is no such verb. A verb that runs ends the process with an exit
    status of its own."""
    if not sys.argv[1:] or sys.argv[1] in ("-h", "--help"):
        print(usage())
        return EXIT_OK
    if sys.argv[1] in ("-V", "--version"):
        print(f"orchestrator {tool_version()}")
        return EXIT_OK
    # People type "batch-size"; the module is called "batch_size".
    verb = sys.argv[1].replace("-", "_")
    if verb not in VERBS:
        from orchestrator.planning.problems import advice  # only a mistake needs it

        hint = advice(verb, list(VERBS))
        print(f'orchestrator: no verb "{sys.argv[1]}"; {hint}', file=sys.stderr)
        return EXIT_USAGE
    # The verb runs as with ``python -m orchestrator.VERB``, and ends the process itself.
    sys.argv = [f"orchestrator {verb}", *sys.argv[2:]]
    runpy.run_module(f"orchestrator.{verb}", run_name="__main__")
    return EXIT_OK


def run() -> None:
    """The entry point of the installed command ``orchestrator``."""
    finish(main)


if __name__ == "__main__":
    run()
