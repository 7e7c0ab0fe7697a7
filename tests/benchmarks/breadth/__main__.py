"""How many of axolotl's example configurations for one GPU our configuration can express.

    python -m tests.benchmarks.breadth FOLDER             # the folder examples of axolotl
    python -m tests.benchmarks.breadth FOLDER --json

Each example is translated key by key, with a model of random weights in place of the named one.
It counts as expressed if every key of its technique has a translation, and our planner plans the
trial. Nothing is trained. What is left is listed by reason, most frequent first.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.breadth.example import examples_in
from tests.benchmarks.breadth.verdicts import Answer, Verdict, counts, judged, reasons


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the counts and what is left."""
    options = command_line().parse_args(arguments)
    verdicts = [judged(example) for example in examples_in(options.folder)]
    if options.json:
        print(json.dumps(as_json(verdicts), indent=1))
        return
    for line in lines(verdicts, with_names=options.names):
        print(line)


def command_line() -> argparse.ArgumentParser:
    """The arguments of the script."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.breadth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="a folder of axolotl's YAML files")
    parser.add_argument("--json", action="store_true", help="print all verdicts as JSON")
    parser.add_argument("--names", action="store_true", help="list the files that are left, too")
    return parser


def lines(verdicts: Sequence[Verdict], *, with_names: bool = False) -> Iterator[str]:
    """The counts, and the reasons of what is left."""
    count = counts(verdicts)
    single = count[Answer.EXPRESSED] + count[Answer.LEFT]
    yield f"{len(verdicts)} examples, {count[Answer.SEVERAL_GPUS]} of them for several GPUs"
    if not single:
        return
    share = 100 * count[Answer.EXPRESSED] / single
    yield f"{count[Answer.EXPRESSED]} of {single} for one GPU expressed ({share:.0f} %)"
    yield ""
    yield "left out  for this reason alone  reason"
    for reason, every, alone in reasons(verdicts):
        yield f"{every:8}  {alone:21}  {reason}"
    if with_names:
        yield ""
        for verdict in verdicts:
            if verdict.answer is Answer.LEFT:
                yield f"{verdict.name}: {'; '.join(verdict.reasons)}"


def as_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Counts, reasons and verdicts as plain values."""
    ranked = []
    for reason, every, alone in reasons(verdicts):
        ranked.append({"reason": reason, "examples": every, "for_this_reason_alone": alone})
    by_name = {}
    for verdict in verdicts:
        by_name[verdict.name] = [verdict.answer, *verdict.reasons]
    return {"counts": counts(verdicts), "reasons": ranked, "examples": by_name}


if __name__ == "__main__":
    main()
