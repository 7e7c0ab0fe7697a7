"""What ``init --from`` makes of the keys of another trainer's file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.planning.dialects.entries import KeyEntry
from orchestrator.planning.dialects.trainers.tables import Verdict
from orchestrator.planning.dialects.translate import Translation
from orchestrator.reporting.terminal.safe_text import shortened, visible

_WORDS = 60
"""Characters of a value that are shown."""
_TITLES: Mapping[Verdict, str] = {
    Verdict.TAKEN: "taken",
    Verdict.NEAREST: "taken as the nearest value",
    Verdict.DEFAULT: "decided by the trainer's default, because no key says it",
    Verdict.IMPOSSIBLE: "not possible here",
    Verdict.UNKNOWN: "not taken",
    Verdict.OVERRULED: "overruled by another key",
    Verdict.ASIDE: "left aside",
}


def table(translation: Translation) -> str:
    """Every key of the user's files under what became of it. A line has one key, or all that are
    left aside for one reason."""
    lines = [f"from a configuration of {' and '.join(translation.dialects)}"]
    for verdict, title in _TITLES.items():
        of_it = [entry for entry in translation.entries if entry.verdict is verdict]
        if of_it:
            each = _by_reason(of_it) if verdict is Verdict.ASIDE else map(line, of_it)
            lines += [f"{title}:", *(f"  {own}" for own in each)]
    return visible("\n".join(lines))


def _by_reason(entries: Sequence[KeyEntry]) -> Iterator[str]:
    """A line for each reason, with the keys that have it."""
    for why in dict.fromkeys(entry.why for entry in entries):
        keys = ", ".join(entry.key for entry in entries if entry.why == why)
        yield f"{keys} ({why})"


def to_json(translation: Translation) -> dict[str, Any]:
    """The same as plain JSON values."""
    return {
        "dialects": list(translation.dialects),
        "keys": [
            {
                "key": entry.key,
                "value": entry.value,
                "became": str(entry.verdict),
                "ours": entry.ours,
                "taken": entry.taken,
                "why": entry.why,
            }
            for entry in translation.entries
        ],
        "configuration": dict(translation.document),
        "missing": translation.missing,
    }


def line(entry: KeyEntry) -> str:
    """A key with what became of it."""
    text = f"{entry.key}: {_short(entry.value)}"
    if entry.ours and entry.verdict in (Verdict.TAKEN, Verdict.NEAREST, Verdict.DEFAULT):
        taken = "" if entry.taken is None else f": {_short(entry.taken)}"
        text += f" -> {entry.ours}{taken}"
    return f"{text} ({entry.why})" if entry.why else text


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return shortened(text, _WORDS)
