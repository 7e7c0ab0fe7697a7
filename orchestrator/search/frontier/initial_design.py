"""The initial design of the frontier search: what it measures before it has a surrogate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.search.frontier.similarity import differing_choices
from orchestrator.search.model.candidates import Candidate, Curve


@dataclass(frozen=True, slots=True)
class InitialDesign:
    """What to measure first, in this order."""

    candidates: tuple[Candidate, ...] = ()
    without_predicted_memory: tuple[Candidate, ...] = ()
    """After those, if memory was not predicted: the smallest of each curve. Nothing else shows
    its memory's floor."""


def initial_design(
    candidates: Sequence[Candidate], similarity_groups: Mapping[Candidate, int]
) -> InitialDesign:
    """The middle of each curve of the reference optimizer, which shows the GPU's pace there.

    Before it comes the smallest candidate of some curves, which shows the host's pace. These curves
    differ from the first curve in one choice at most, and are not similar to an earlier curve.
    """
    curves = _reference_curves(candidates)
    if not curves:
        return InitialDesign()
    leaders = group_leaders(similarity_groups)
    chosen: list[Candidate] = []
    smallest_of_each = []
    for members, distance in zip(curves.values(), differing_choices(curves)[0], strict=True):
        smallest = members[0]
        smallest_of_each.append(smallest)
        # A similar earlier curve shows the host's pace of this one, too.
        is_leader = leaders[similarity_groups[smallest]] is smallest
        # The distance is the number of choices in which the curve differs from the first one.
        if is_leader and distance < 2:
            chosen.append(smallest)
        chosen.append(members[len(members) // 2])
    # The smallest may also be the middle. A dict keeps each once, in order.
    return InitialDesign(tuple(dict.fromkeys(chosen)), tuple(smallest_of_each))


def _reference_curves(candidates: Iterable[Candidate]) -> dict[Curve, list[Candidate]]:
    """The curves of the reference optimizer, and their candidates by rising micro-batch."""
    curves: dict[Curve, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.has_reference_optimizer:
            curves.setdefault(candidate.curve, []).append(candidate)
    for members in curves.values():
        members.sort(key=_micro_batch)
    return curves


def _micro_batch(candidate: Candidate) -> int:
    return candidate.micro_batch


def group_leaders(groups: Mapping[Candidate, int]) -> dict[int, Candidate]:
    """Number of a group -> its first candidate in the plan."""
    leaders: dict[int, Candidate] = {}
    for candidate, number in groups.items():
        leaders.setdefault(number, candidate)
    return leaders
