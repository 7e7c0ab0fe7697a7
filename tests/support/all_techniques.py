"""Keeps ``configs/all_techniques.yaml`` complete: a trial for every row that no line of it names.

``python -m tests.support.all_techniques`` (part of ``make schema``) writes these trials at the end
of the list, under ``HEADING``. A row that runs only together with others is written by hand above.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from jobs.techniques import AXES

CONFIG = Path(__file__).parents[2] / "configs/all_techniques.yaml"
HEADING = "  # rows that no line above names; make schema adds them\n"


def completed(text: str) -> str:
    """The file's text with a trial for every row. Raises ValueError if it has no ``HEADING``."""
    before, heading, after = text.partition(HEADING)
    if not heading:
        raise ValueError(f"the file has no line{HEADING.rstrip()!r}")
    # What was added earlier ends where the next key of the file begins.
    lines = after.splitlines(keepends=True)
    while lines and lines[0].startswith("  "):
        del lines[0]
    rest = "".join(lines)
    config = yaml.safe_load(before + rest)
    added = [f"  - {{{axis}: {name}}}\n" for axis, name in _unnamed_rows(config)]
    return before + heading + "".join(added) + rest


def _unnamed_rows(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Axis and name of every row that neither a trial nor the baseline has."""
    assignments = [config["baseline"], *config["trials"]]
    for axis in AXES.values():
        named = {axis.default}
        named.update(_name(assignment.get(axis.name)) for assignment in assignments)
        for name in axis.variants:
            if name not in named:
                yield axis.name, name


def _name(value: Any) -> Any:
    """The row that a value names: a row with parameters is a mapping with one key."""
    if isinstance(value, dict):
        return next(iter(value))
    return value


if __name__ == "__main__":
    CONFIG.write_text(completed(CONFIG.read_text(encoding="utf-8")), encoding="utf-8")
