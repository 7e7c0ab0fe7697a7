"""Keys that were renamed: their old names still work in this version, and are reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from orchestrator.planning.document import Document
from orchestrator.planning.problems import KeyPath, Problem, dotted

V = TypeVar("V")
Keys = tuple[str, ...]

RENAMED_KEYS: Mapping[Keys, Keys] = {
    ("measure", "deadline"): ("measure", "timeout"),
    ("measure", "verify"): ("follow_up", "verify_budgets"),
    ("measure", "turns"): ("follow_up", "tie_break_rounds"),
    ("measure", "anatomy"): ("follow_up", "profile"),
    ("search", "audit"): ("search", "audit_fraction"),
    ("resources", "calibrate"): ("resources", "screen_gpus"),
    ("trackers",): ("loggers",),
    ("cpu",): ("cpu_fallback",),
}
"""Old key path -> new key path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Renaming:
    """A document with its old keys under their new names."""

    document: Document
    notes: tuple[str, ...]
    """One sentence per old key, with its line."""
    problems: tuple[Problem, ...]
    """Keys that are given under both names."""


def with_new_keys(document: Document) -> Renaming:
    """The document with every renamed key under its new name."""
    notes: list[str] = []
    problems: list[Problem] = []
    for old, new in _old_keys_of(document):
        if _has(document.value, new):
            message = f"is the old name of {dotted(new)}, which is given too; remove one of them"
            problems.append(document.problem(old, message))
            # Without the old key the rest of the file can still be checked.
            rest, _ = _taken_out(document.value, old)
            document = replace(document, value=rest)
        else:
            notes.append(_note(document, old, new))
            document = _renamed(document, old, new)
    return Renaming(document=document, notes=tuple(notes), problems=tuple(problems))


def _note(document: Document, old: Keys, new: Keys) -> str:
    at = f"{document.file}:{document.lines[old]}"
    return f"{at}: {dotted(old)} is now {dotted(new)}; the old key still works in this version"


def _old_keys_of(document: Document) -> Iterator[tuple[Keys, Keys]]:
    """The renamed keys that the file has and that can be moved, in the order of the table."""
    for old, new in RENAMED_KEYS.items():
        if not _has(document.value, old):
            continue
        # A key can move only into a mapping. A section of another type is an error that the schema
        # reports.
        is_top_level = len(new) == 1
        if is_top_level or isinstance(document.value.get(new[0], {}), dict):
            yield old, new


def _has(value: Mapping[str, Any], at: Keys) -> bool:
    section: Any = value
    for key in at:
        if not isinstance(section, dict) or key not in section:
            return False
        section = section[key]
    return True


def _renamed(document: Document, old: Keys, new: Keys) -> Document:
    return replace(
        document,
        value=_moved(document.value, old, new),
        lines=_under_new_name(document.lines, old, new),
        written=_under_new_name(document.written, old, new),
    )


def _moved(value: Mapping[str, Any], old: Keys, new: Keys) -> dict[str, Any]:
    """A copy in which the value at ``old`` lies at ``new``; an emptied section stays."""
    moved, content = _taken_out(value, old)
    if len(new) == 1:
        return {**moved, new[0]: content}
    section = moved.get(new[0], {})
    return {**moved, new[0]: {**section, new[1]: content}}


def _taken_out(value: Mapping[str, Any], at: Keys) -> tuple[dict[str, Any], Any]:
    """A copy without the value at a key path, and that value."""
    rest = dict(value)
    # At the last key, its value is taken out. Each section above is copied with that change.
    if len(at) == 1:
        content = rest.pop(at[0])
        return rest, content
    section, content = _taken_out(rest[at[0]], at[1:])
    return {**rest, at[0]: section}, content


def _under_new_name(by_path: Mapping[KeyPath, V], old: Keys, new: Keys) -> dict[KeyPath, V]:
    """A table by key path, with every path at or below ``old`` moved to ``new``."""
    moved: dict[KeyPath, V] = {}
    for path, item in by_path.items():
        # The key itself and everything below it.
        if path[: len(old)] == old:
            path = new + path[len(old) :]
        moved[path] = item
    return moved
