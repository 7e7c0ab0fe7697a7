"""What to train with: the best configuration under constraints, the next ones, and what each constraint costs."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.analysis.accumulation import Candidate, candidates
from orchestrator.analysis.cap_checks import Check, evidence
from orchestrator.analysis.objectives import OBJECTIVES, Objective
from orchestrator.analysis.pareto import Point
from orchestrator.analysis.tie_breaks import Pairing, fastest_in_turns

RUNNERS_UP = 4
WORTH_MENTIONING = 0.02
"""A constraint whose loosening gains less than this is not said to cost anything."""
PREFERENCE_FOR_MEASURED = 0.05
"""An inferred configuration takes a measured one's place only by this much."""
NEARLY = 0.05
"""How much worse still counts as nearly as good, when less memory would do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What a person wants, and under which constraints."""

    memory_bytes: int | None = None
    effective_batch: int | None = None
    any_training: bool = False
    """Whether what trains otherwise than the baseline (another optimizer, LoRA) is ranked with it."""
    exact: bool = False
    """Only rows whose losses the numerical guard does not doubt."""
    objective: Objective = field(default_factory=lambda: OBJECTIVES["samples_per_second"])
    price_per_hour: float | None = None
    """Of one GPU, in whatever currency."""

    def score(self, candidate: Candidate) -> float:
        """How good a candidate is: more is better, whatever the objective."""
        return self.objective.score(candidate.point, self.price_per_hour)

    def allows(self, candidate: Candidate, training: str) -> bool:
        """Whether a candidate keeps the constraints of memory and training."""
        point = candidate.point
        fits = self.memory_bytes is None or point.memory_bytes <= self.memory_bytes
        alike = self.any_training or point.training == training
        sure = not (self.exact and point.trains_differently)
        return fits and alike and sure and self.score(candidate) != float("-inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What loosening one constraint would buy, or what keeping within less would lose."""

    constraint: str
    """memory, effective_batch, training, exact; "less memory" for what nearly as good a configuration saves."""
    candidate: Candidate
    ratio: float | None
    """The candidate's figure to the best one's; None where nothing keeps all constraints."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The answer to a wish."""

    wish: Wish
    best: Candidate | None
    runners_up: tuple[Candidate, ...]
    """The best of each further set of techniques."""
    costs: tuple[Cost, ...]
    doubted: int
    """Candidates within memory that ``exact`` refused because their losses are not their reference's."""
    seen: Check | None = None
    """That the best fitted under a cap of no more than the memory asked for; None where its peak has to do."""
    in_turns: tuple[Pairing, ...] = ()
    """What came of measuring the best in turns with what the search could not tell from it."""
    text: str = ""
    """All of it in words, where a run was asked."""

    def __repr__(self) -> str:
        return self.text or object.__repr__(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"

    def figure(self, candidate: Candidate) -> float | None:
        """The objective's figure, in its own unit."""
        return self.wish.objective.of(candidate.point, self.wish.price_per_hour)


def recommend(
    points: Iterable[Point],
    wish: Wish,
    training: str = "",
    checks: Sequence[Check] = (),
    pairings: Sequence[Pairing] = (),
) -> Recommendation:
    """The answer from points that may be ranked together; ``training`` is the baseline's kind.

    A point that ``checks`` saw fail under a cap of the memory asked for, or of more, is out, whatever its peak was;
    one that ``pairings`` saw to be faster in turns than the fastest comes before it.
    """

    def seen(point: Point) -> Check | None:
        return (
            None
            if wish.memory_bytes is None
            else evidence(checks, point.trial_ids, wish.memory_bytes)
        )

    known = tuple(point for point in points if (check := seen(point)) is None or check.fits)

    def rank(wish: Wish) -> tuple[Candidate, ...]:
        return _turned(_ranked(known, wish, training), wish, pairings)

    ranked = rank(wish)
    best = ranked[0] if ranked else None
    unsure = [
        c
        for c in candidates(known, wish.effective_batch)
        if replace(wish, exact=False).allows(c, training)
    ]
    return Recommendation(
        wish=wish,
        best=best,
        runners_up=_unlike(ranked)[1 : RUNNERS_UP + 1],
        costs=_costs(rank, wish, ranked),
        doubted=sum(bool(c.point.trains_differently) for c in unsure) if wish.exact else 0,
        seen=None if best is None or best.inferred else seen(best.point),
        in_turns=_turns_of(ranked, pairings),
    )


def _ranked(points: Sequence[Point], wish: Wish, training: str) -> tuple[Candidate, ...]:
    """All that keeps the constraints, best first; the leaner of equals."""

    def place(candidate: Candidate) -> tuple[float, int]:
        score = wish.score(candidate)
        discount = PREFERENCE_FOR_MEASURED * abs(score) if candidate.inferred else 0.0
        return score - discount, -candidate.point.memory_bytes

    own = (c for c in candidates(points, wish.effective_batch) if wish.allows(c, training))
    return tuple(sorted(own, key=place, reverse=True))


def _turned(
    ranked: Sequence[Candidate], wish: Wish, pairings: Sequence[Pairing]
) -> tuple[Candidate, ...]:
    """The ranking with the faster in turns before the first, where speed is what is asked for."""
    by_speed = (
        wish.objective is OBJECTIVES["samples_per_second"] and ranked and not ranked[0].inferred
    )
    faster = (
        fastest_in_turns([c.point for c in ranked if not c.inferred], pairings)
        if by_speed
        else None
    )
    return tuple(
        sorted(ranked, key=lambda candidate: faster is not None and candidate.point is not faster)
    )


def _turns_of(ranked: Sequence[Candidate], pairings: Iterable[Pairing]) -> tuple[Pairing, ...]:
    """The pairings that the best was in, with others that keep the constraints."""
    measured = [candidate.point for candidate in ranked if not candidate.inferred]
    if not ranked or ranked[0].inferred:
        return ()
    ids = {trial_id for point in measured for trial_id in point.trial_ids}
    own = ranked[0].point.trial_ids
    return tuple(
        p for p in pairings if {p.one, p.other} <= ids and (p.one in own or p.other in own)
    )


def _unlike(ranked: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The first of each set of techniques: batches apart, no two are alike."""
    first: dict[tuple[object, ...], Candidate] = {}
    for candidate in ranked:
        choices = candidate.point.choices
        first.setdefault(
            tuple(v for a, v in choices.items() if a not in ("micro_batch", "accumulation")),
            candidate,
        )
    return tuple(first.values())


Rank = Callable[[Wish], tuple[Candidate, ...]]


def _costs(rank: Rank, wish: Wish, ranked: Sequence[Candidate]) -> tuple[Cost, ...]:
    best = ranked[0] if ranked else None
    looser = {
        "effective_batch": replace(wish, effective_batch=None)
        if wish.effective_batch is not None
        else None,
        "exact": replace(wish, exact=False) if wish.exact else None,
        "training": replace(wish, any_training=True) if not wish.any_training else None,
    }
    tops = {name: rank(other)[:1] for name, other in looser.items() if other is not None}
    found = [("memory", c) for c in _memory_steps(rank, wish, best)]
    found += [(name, c) for name, top in tops.items() for c in top if _gains(c, best, wish)]
    if best is not None and (saving := _leaner(ranked, wish)):
        found.append(("less memory", saving))
    return tuple(
        Cost(constraint=name, candidate=c, ratio=_ratio(c, best, wish)) for name, c in found
    )


def _memory_steps(rank: Rank, wish: Wish, best: Candidate | None) -> tuple[Candidate, ...]:
    """The least memory beyond the limit that buys something worth mentioning, and what buys most."""
    if wish.memory_bytes is None:
        return ()
    beyond = (
        c
        for c in rank(replace(wish, memory_bytes=None))
        if c.point.memory_bytes > wish.memory_bytes
    )
    better = [c for c in beyond if _gains(c, best, wish)]
    steps = (
        {id(c): c for c in (min(better, key=lambda c: c.point.memory_bytes), better[0])}
        if better
        else {}
    )
    return tuple(steps.values())


def _leaner(ranked: Sequence[Candidate], wish: Wish) -> Candidate | None:
    """Nearly as good in at least a fifth less memory."""
    best = ranked[0]
    floor = wish.score(best) - NEARLY * abs(wish.score(best))
    near = [
        c
        for c in ranked
        if wish.score(c) >= floor and c.point.memory_bytes <= 0.8 * best.point.memory_bytes
    ]
    return min(near, key=lambda c: c.point.memory_bytes, default=None)


def _ratio(candidate: Candidate, best: Candidate | None, wish: Wish) -> float | None:
    return None if best is None else wish.score(candidate) / wish.score(best)


def _gains(candidate: Candidate, best: Candidate | None, wish: Wish) -> bool:
    """Whether it is enough better than the best within the constraints; anything is where there is none."""
    if best is None:
        return True
    gain = wish.score(candidate) - wish.score(best)
    return gain > WORTH_MENTIONING * abs(wish.score(best))
