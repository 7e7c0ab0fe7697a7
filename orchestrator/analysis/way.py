"""The way from one measured configuration to another, over those measured in between."""

from collections.abc import Iterable, Mapping

from jobs.spec import Choice
from orchestrator.analysis.configuration import BATCH_AXES, Configuration


def way(
    configurations: Iterable[Configuration], start: Configuration, goal: Configuration
) -> tuple[Configuration, ...]:
    """From ``start`` to ``goal``: each step takes over more of the goal's techniques, loses none.
    Of several ways the one with most steps, and of these the fastest ones. What lies in between has
    correct losses, and no technique of neither; its batch may be any."""
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
