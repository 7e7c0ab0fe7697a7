"""What the frontier search measures before anything is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.search.frontier.configurations import Configuration, Key
from orchestrator.search.frontier.similarity import apart

Configurations = tuple[Configuration, ...]


def design(
    planned: Sequence[Configuration], kin: Mapping[Configuration, int]
) -> tuple[Configurations, Configurations]:
    """Of each curve of the first optimizer the middle; and the smallest of those that are at most one choice from the
    first curve, and no kin of one before them, which tells what the host takes. And apart the smallest of the others,
    where nothing but measuring tells their memory."""
    curves: dict[Key, list[Configuration]] = {}
    for one in planned:
        if one.donor == one.curve:
            curves.setdefault(one.curve, []).append(one)
    if not curves:
        return (), ()
    leaders = {number: one for one, number in reversed(list(kin.items()))}
    by_size = [sorted(members, key=lambda one: one.micro_batch) for members in curves.values()]
    leads = [leaders[kin[smallest]] is smallest for smallest, *_ in by_size]
    near = ((apart(curves)[0] < 2) & leads).tolist()
    first = (
        one
        for members, is_near in zip(by_size, near, strict=True)
        for one in _ends(members)[1 - is_near :]
    )
    return tuple(dict.fromkeys(first)), tuple(_ends(members)[0] for members in by_size)


def _ends(members: Sequence[Configuration]) -> tuple[Configuration, Configuration]:
    return members[0], members[len(members) // 2]
