"""The way from one configuration to another over what was measured in between."""

import itertools
from collections.abc import Iterable, Iterator, Mapping

from jobs.spec import Choice
from jobs.techniques import BATCH_AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.labels import changed_label


def labelled_way(
    configurations: Iterable[Configuration], before: Configuration, after: Configuration
) -> Iterator[tuple[str, Configuration]]:
    """Each step says what it adds to the one before; none if nothing changes."""
    if changed_label(before.choices, after.choices):
        yield "your arguments", before
        for one, other in itertools.pairwise(way(configurations, before, after)):
            yield f"+ {changed_label(one.choices, other.choices)}", other


def way(
    configurations: Iterable[Configuration], start: Configuration, goal: Configuration
) -> tuple[Configuration, ...]:
    """From ``start`` to ``goal`` by taking over techniques of the goal, in most steps, and of these
    by the fastest ones. What lies in between has correct losses; its batch may be any."""
    added = {own.trial_ids: _added(start.choices, own.choices) for own in configurations}
    whole = _added(start.choices, goal.choices)
    between = [
        own
        for own in configurations
        if set() < added[own.trial_ids] < whole and not own.trains_wrongly
    ]
    between.sort(key=lambda own: (len(added[own.trial_ids]), own.samples_per_second))
    ways: list[tuple[Configuration, ...]] = [(start,)]
    for step in between:
        reached = added[step.trial_ids]
        before = [each for each in ways if added[each[-1].trial_ids] < reached]
        ways.append((*max(before, key=len), step))
    longest = max(map(len, ways))
    return (*[each for each in ways if len(each) == longest][-1], goal)


def _added(before: Mapping[str, Choice], after: Mapping[str, Choice]) -> set[tuple[str, Choice]]:
    """The techniques of ``after`` that ``before`` does not have."""
    return {pair for pair in after.items() - before.items() if pair[0] not in BATCH_AXES}
