"""From a measured configuration back to keys of the user's own file."""

import itertools
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.planning.choices.base_arguments import CUSTOM
from orchestrator.planning.choices.technique_parameters import read_family
from orchestrator.planning.dialects.entries import KeyEntry, entries_of
from orchestrator.planning.dialects.registry import UnreadableFileError, read_file
from orchestrator.planning.dialects.to_ours.chosen_axes import COMPILE_MODES, axes_of
from orchestrator.planning.dialects.to_ours.facts import Facts, ours
from orchestrator.planning.dialects.trainers.tables import COMMAND, Dialect, Rule
from orchestrator.planning.dialects.translate import translate
from orchestrator.planning.dialects.write_back.text_edit import Edits, edited

OFF = False
"""What a key becomes whose feature is no longer used."""
_NO_VALUE = object()
_NOTHING = (None, False, "none", "plain", "auto")
"""Values of facts that no key needs to state, once no key states another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedFile:
    """The user's file with the keys of another configuration."""

    text: str
    changes: tuple[str, ...]
    """``key: value``, for every key that was changed or added."""
    not_written: tuple[str, ...]
    """``axis: value``, for every choice that the file does not say."""
    model: Mapping[str, Any]
    """The model that it names, as our configuration holds it; empty if it names none."""


def changed_file(path: Path, choices: Mapping[str, Choice]) -> ChangedFile:
    """The user's file as it is for the configuration with these choices; only changed keys differ.
    The changed keys are read again, so that what they do not say is known. Raises
    UnreadableFileError if the file is in no known dialect."""
    *_, (dialect, content) = read_file(path)
    if content.keys() <= {COMMAND, "config"}:
        raise UnreadableFileError(f"{path}: its keys are in {content['config']}: give that file")
    is_command = path.suffix not in (".yaml", ".yml", ".json")
    translated = partial(translate, folder=path.parent)
    edits: dict[str, Any] = {}
    changed = content
    # Twice, because a key that is switched off may have stated more than what was to change.
    for _ in range(2):
        own = _Own(dialect, changed, translated([(dialect, changed)]).facts)
        facts = _changed_facts(dialect.rows, own.facts, _wanted(own.facts, choices))
        edits |= _edits(own, facts, is_flat=is_command)
        _add_plugins(dialect, content, edits)
        changed = {**content, **_unflat(edits, content)}
    after = translated([(dialect, changed)])
    left = _wanted(after.facts, choices)
    text = path.read_text(encoding="utf-8")
    return ChangedFile(
        text=edited(text, path.suffix, edits, options=content if is_command else None),
        changes=tuple(f"{key}: {value}" for key, value in edits.items()),
        not_written=tuple(f"{axis}: {value}" for axis, value in left.items()),
        model=after.document.get("model", {}),
    )


def _wanted(facts: Facts, choices: Mapping[str, Choice]) -> dict[str, Choice]:
    """Those of the choices that a file with these facts does not make."""
    own = _choices(facts)
    return {
        axis: choices[axis]
        for axis in AXES
        if choices.get(axis, CUSTOM) not in (CUSTOM, own.get(axis))
    }


class _Own(NamedTuple):
    """The user's file."""

    dialect: Dialect
    content: Mapping[str, Any]
    facts: Mapping[str, Any]


def _choices(facts: Mapping[str, Any]) -> dict[str, Choice]:
    """The value of every axis, as a plan writes it."""
    choices: dict[str, Choice] = {name: axis.default for name, axis in AXES.items()}
    for name, value in axes_of(facts).items():
        is_family = isinstance(value, Mapping)
        choices[name] = read_family(AXES[name], value)[0] if is_family else value
    return choices


def _edits(own: _Own, changed: Mapping[str, Any], *, is_flat: bool) -> Iterator[tuple[str, Any]]:
    """Key -> its new value, for the changed facts that the file shall state."""
    # The subcommand is a word of the command line, and no option.
    stated = [one for one in entries_of(own.dialect, own.content) if one.key != COMMAND]
    facts = {**own.facts, **changed}
    done: set[str] = set()
    for fact in changed:
        if fact in done:
            continue
        stating = [entry for entry in stated if fact in entry.facts]
        for entry in stating:
            rule = own.dialect.rows.get(entry.key, Rule())
            their = _changed_value(rule, entry, fact, facts)
            done |= set() if their is _NO_VALUE or isinstance(their, list) else {fact}
            yield entry.key, _off(rule) if their is _NO_VALUE else their
        if fact in done or (stating and facts[fact] in _NOTHING):
            continue
        if found := _row_for(own, fact, facts, changed.keys(), is_flat=is_flat):
            key, their, covered = found
            done |= covered
            yield key, their


def _off(rule: Rule) -> Any:
    """What a key becomes whose feature is no longer used: the word that states nothing."""
    word = next((word for word, stated in rule.values.items() if stated == {}), "")
    return {"": OFF, "false": OFF, "none": None}.get(word, word)


def _changed_value(rule: Rule, entry: KeyEntry, fact: str, facts: Mapping[str, Any]) -> Any:
    """The new value of a key that states another value of the fact; _NO_VALUE if it has none."""
    if rule.each and isinstance(entry.value, list):
        return [item for item in entry.value if fact not in rule.read([item]).facts]
    return _their_value(rule, fact, facts)


def _row_for(
    own: _Own, fact: str, facts: Mapping[str, Any], changed: Set[str], *, is_flat: bool
) -> tuple[str, Any, Set[str]] | None:
    """The key that states the most changed facts with this one: key, value, and those facts."""
    found = None
    for key, rule in own.dialect.rows.items():
        outer, _, inner = key.partition(".")
        is_addable = not inner or (not is_flat and (outer in own.content or "_kwargs" in outer))
        their = _their_value(rule, fact, facts)
        is_addable = is_addable and "*" not in key and key not in (COMMAND, *own.dialect.reads)
        if not is_addable or their is _NO_VALUE:
            continue
        covered = rule.read(their).facts.keys() & changed
        if fact in covered and (found is None or len(covered) > len(found[2])):
            found = (key, their, covered)
    return found


def _their_value(rule: Rule, fact: str, facts: Mapping[str, Any]) -> Any:
    """The value of a key with which it states the fact, and none that differs, else _NO_VALUE."""
    if rule.fact == fact and not rule.values:
        return facts[fact]
    for word, value_of_fact in rule.values.items():
        stated = {rule.fact: value_of_fact} if rule.fact else value_of_fact
        if fact in stated and all(facts.get(name, ...) == value for name, value in stated.items()):
            return int(word) if word.isdecimal() else {"true": True, "false": False}.get(word, word)
    return _NO_VALUE


def _add_plugins(dialect: Dialect, content: Mapping[str, Any], edits: dict[str, Any]) -> None:
    """Add the plugins without which keys have no effect."""
    for key, (start, plugin) in itertools.product([*edits], dialect.plugins.items()):
        present = edits.get("plugins", content.get("plugins") or [])
        if key.startswith(start) and edits[key] is not OFF and plugin not in present:
            edits["plugins"] = [*present, plugin]


def _unflat(edits: Edits, content: Mapping[str, Any]) -> dict[str, Any]:
    """The changed values of top-level keys."""
    changed: dict[str, Any] = {}
    for key, value in edits.items():
        first, _, rest = key.partition(".")
        if not rest:
            changed[first] = value
            continue
        inner = changed.get(first, content.get(first))
        changed[first] = {**(inner if isinstance(inner, Mapping) else {}), rest: value}
    return changed


def _changed_facts(
    rules: Mapping[str, Rule], before: Facts, wanted: Mapping[str, Choice]
) -> dict[str, Any]:
    """The facts to change so that the axes have the ``wanted`` values. They are the fewest that the
    rules of a dialect can state, and leave all other axes as they are where that is possible. An
    axis that no such facts decide is left out."""
    changed: dict[str, Any] = {}
    for axis, value in wanted.items():
        now = {**before, **changed}
        others = {name: own for name, own in axes_of(now).items() if name not in wanted}
        changes = _changes(rules, now, axis, value)
        changed |= min(changes, key=partial(_cost, now, others), default={})
    return changed


def _cost(now: Facts, others: Facts, change: Facts) -> tuple[int, int, int]:
    """How many ``others`` a change disturbs, how many facts it changes, and to no value."""
    after = axes_of({**now, **change})
    disturbed = sum(after.get(name) != own for name, own in others.items())
    return disturbed, len(change), sum(own is None for own in change.values())


def _changes(
    rules: Mapping[str, Rule], now: Facts, axis: str, value: Choice
) -> Iterator[dict[str, Any]]:
    single = []
    for stated in _stated(rules, now, value):
        own = {fact: each for fact, each in stated.items() if ours(fact) == f"axes.{axis}"}
        # A switch may be off, which is no value; a number may not.
        off = {fact: None for fact in own if type(now.get(fact)) is not int}
        single += [own, off, *({fact: None} for fact in off)]
    single = [own for place, own in enumerate(single) if own and own not in single[:place]]
    for first, second in itertools.combinations_with_replacement(single, 2):
        facts = {fact: own for fact, own in {**first, **second}.items() if own != now.get(fact)}
        if axes_of({**now, **facts}).get(axis, AXES[axis].default) == value:
            yield facts


def _stated(rules: Mapping[str, Rule], now: Facts, value: Choice) -> Iterator[Mapping[str, Any]]:
    for rule in rules.values():
        for own in rule.values.values():
            yield {rule.fact: own} if rule.fact else own
        if rule.fact and not rule.values:
            # The key states whatever value it has.
            numbers = [value // now.get("rows_of_a_sample", 1)] if isinstance(value, int) else []
            words = [] if type(now.get(rule.fact)) is int else [True, False, *COMPILE_MODES]
            yield from ({rule.fact: own} for own in numbers or words)
