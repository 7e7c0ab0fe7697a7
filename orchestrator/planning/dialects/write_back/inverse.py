"""Values of our axes -> facts: the way back of ``axes.py``, among all that a dialect states."""

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.planning.dialects.to_ours.axes import COMPILE_MODES, axes_of
from orchestrator.planning.dialects.to_ours.facts import Facts, ours
from orchestrator.planning.dialects.trainers.rule import Rule


def changed_facts(
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
    """The changes by one or two keys' statements with which the axis has this value."""
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
    """What each key may state: facts with their values."""
    for rule in rules.values():
        for own in rule.values.values():
            yield {rule.fact: own} if rule.fact else own
        if rule.fact and not rule.values:
            # The key states whatever value it has.
            numbers = [value // now.get("rows_of_a_sample", 1)] if isinstance(value, int) else []
            yield from ({rule.fact: own} for own in numbers or [True, False, *COMPILE_MODES])
