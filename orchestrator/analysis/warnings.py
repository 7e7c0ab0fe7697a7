"""What trials warned of, alike warnings together: their figures become a range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.units import count

_FIGURE = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """One kind of warning, and who gave it."""

    kind: str
    """The word before the colon: host-bound, unstable, thrashing; the whole text where there is none."""
    text: str
    """What the trials said after it."""
    labels: tuple[str, ...]
    """The configurations, named; one a trial."""


def gather(warnings: Iterable[tuple[str, str]]) -> tuple[Doubt, ...]:
    """(warning, configuration) pairs by kind, most trials first."""
    texts: dict[str, dict[str, None]] = {}
    labels: dict[str, list[str]] = {}
    for warning, label in warnings:
        kind, _, text = (part.strip() for part in warning.partition(":"))
        texts.setdefault(kind, {})[text] = None
        labels.setdefault(kind, []).append(label)
    found = [
        Doubt(kind=kind, text=_in_one(list(own)), labels=tuple(labels[kind]))
        for kind, own in texts.items()
    ]
    return tuple(sorted(found, key=lambda doubt: -len(doubt.labels)))


def _in_one(texts: Sequence[str]) -> str:
    """One text for many: those that differ in figures alone get each figure's range, others the first as an example."""
    if len(texts) == 1:
        return texts[0]
    if len({_FIGURE.sub("0", text) for text in texts}) > 1:
        return f"{texts[0]} (and {count(len(texts) - 1, 'other wording')})"
    columns = zip(*(_FIGURE.findall(text) for text in texts), strict=True)
    ranges = iter([sorted(set(column), key=float) for column in columns])
    return _FIGURE.sub(
        lambda _: "–".join(dict.fromkeys((own := next(ranges))[:1] + own[-1:])), texts[0]
    )
