"""Recommends the best candidate, with the runners-up and what each constraint costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.follow_up_results import CapCheck, PairedComparison, decisive_check
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.pareto import little_memory, pareto_front
from orchestrator.analysis.recommendation.offers import Offer, as_measured
from orchestrator.analysis.recommendation.ranking import (
    Constraints,
    Rankings,
    Reason,
    best_of_other_samples,
    not_ranked,
)
from orchestrator.analysis.repeatability import NEARLY


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuCount:
    gpus: int
    best: Offer
    efficiency: float | None
    """Its speed, as a share of what so many GPUs would have that each train like the best on one
    GPU; None if nothing on one GPU meets the constraints."""

    @property
    def samples_per_second_per_gpu(self) -> float:
        return self.best.configuration.samples_per_second / self.gpus


def gpu_counts(rankings: Rankings, constraints: Constraints) -> Sequence[GpuCount]:
    """The best on each number of GPUs, the fewest first; empty if the run has only one number."""
    by_count = grouped(rankings.configurations, attrgetter("gpus"))
    if len(by_count) < 2:
        return ()
    picks: dict[int, Offer] = {}
    for gpus in sorted(by_count):
        own = replace(rankings, configurations=by_count[gpus]).under(constraints)
        if (pick := own.pick(constraints.memory_bytes)) is not None:
            picks[gpus] = pick
    alone = picks.get(1)

    def efficiency(gpus: int, best: Offer) -> float | None:
        if alone is None:
            return None
        speed, of_one = (own.configuration.samples_per_second for own in (best, alone))
        return speed / (gpus * of_one)

    return [
        GpuCount(gpus=gpus, best=best, efficiency=efficiency(gpus, best))
        for gpus, best in picks.items()
    ]


WORTH_MENTIONING = 0.02
"""Loosening a constraint is mentioned if it gains more than this share."""
LESS_MEMORY = 0.8
"""A nearly as good one is mentioned if it needs at most this share of the best one's memory."""
REACH = 1.5
"""Batches up to this many times larger or smaller count as near."""
WORTH_ANOTHER_BATCH = 0.10
"""Another batch changes the training, so it is offered only for a gain above this; the nearest one
on its side, below or above, to within the same share of the best there."""
Loosened = Literal["memory", "effective_batch", "recipe", "less memory", "nearby batch"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative:
    """A candidate that another constraint would allow, or that is nearly as good."""

    constraint: Loosened
    """What was loosened; or "less memory": nearly as good, but much smaller; or "nearby batch":
    much faster at a near effective batch."""
    candidate: Offer
    ratio: float | None
    """The candidate's figure divided by the best's; None without a best."""

    @property
    def effective_batch(self) -> int:
        return self.candidate.effective_batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The best configuration under constraints, its alternatives, and its checks."""

    constraints: Constraints
    best: Offer | None
    runners_up: tuple[Offer, ...]
    """The best candidate of each other set of techniques."""
    costs: tuple[Alternative, ...]
    """What loosening each constraint would gain, and what needing less memory would lose."""
    left_out: tuple[Offer, ...]
    """The candidates that meet the constraints, but have wrong losses; the best first."""
    left_out_better: int
    """How many of them are better than the best."""
    not_ranked: Mapping[Reason, int]
    """Why measured configurations are not ranked -> how many."""
    other_samples: tuple[Offer, ...]
    """The best of each kind of sample that the objective cannot compare with the ranked one."""
    nearby: tuple[Alternative, ...]
    """The nearest better effective batch below the one asked for, and the nearest above."""
    check: CapCheck | None
    """The cap check of the best; None if its fit is inferred from its peak."""
    comparisons: tuple[PairedComparison, ...]
    """Tie-breaks between the best and other candidates."""
    gpu_counts: Sequence[GpuCount]
    """The best on each number of GPUs; empty if the run has only one number."""

    def figure(self, candidate: Offer) -> float | None:
        """The objective's figure, in its own unit."""
        price = self.constraints.price_per_hour
        return self.constraints.objective.of(candidate.configuration, price)


def recommend(rankings: Rankings, constraints: Constraints) -> Recommendation:
    """The recommendation from the configurations of one environment."""
    ranking = rankings.under(constraints)
    ranked = ranking.ranked(constraints.memory_bytes)
    best = next(iter(ranked), None)
    first_of_techniques: dict[tuple[object, ...], Offer] = {}
    for candidate in ranked:
        first_of_techniques.setdefault(candidate.configuration.techniques, candidate)
    check = None
    if best is not None and not best.is_inferred and constraints.memory_bytes is not None:
        trial_ids = best.configuration.trial_ids
        check = decisive_check(rankings.checks, trial_ids, constraints.memory_bytes)
    wrong = ranking.trains_wrongly(constraints.memory_bytes)
    return Recommendation(
        constraints=constraints,
        best=best,
        runners_up=tuple(first_of_techniques.values())[1:5],
        costs=_constraint_costs(rankings, constraints, ranked),
        left_out=tuple(wrong),
        left_out_better=sum(constraints.gains(each, best, 0.0) for each in wrong),
        not_ranked={reason: len(own) for reason, own in not_ranked(rankings, constraints).items()},
        other_samples=best_of_other_samples(rankings, constraints),
        nearby=_nearby_batches(rankings, constraints, best),
        check=check,
        comparisons=_comparisons_of_best(ranked, rankings.comparisons),
        gpu_counts=gpu_counts(rankings, constraints),
    )


def _comparisons_of_best(
    ranked: Sequence[Offer], comparisons: Iterable[PairedComparison]
) -> tuple[PairedComparison, ...]:
    if not ranked or ranked[0].is_inferred:
        return ()
    best_ids = set(ranked[0].configuration.trial_ids)
    measured = [own.configuration for own in ranked if not own.is_inferred]
    ranked_ids = {trial_id for own in measured for trial_id in own.trial_ids}
    of_best = []
    for comparison in comparisons:
        pair = {comparison.trial_id, comparison.reference_id}
        if pair <= ranked_ids and pair & best_ids:
            of_best.append(comparison)
    return tuple(of_best)


def _constraint_costs(
    rankings: Rankings, constraints: Constraints, ranked: Sequence[Offer]
) -> tuple[Alternative, ...]:
    best = next(iter(ranked), None)
    # More memory is offered in two steps: the next larger card, and the largest gain.
    found: list[tuple[Loosened, Offer]] = [
        ("memory", own) for own in _more_memory(rankings, constraints, best)
    ]
    loosened: dict[Loosened, Constraints] = {
        "effective_batch": replace(constraints, effective_batch=None),
        "recipe": replace(constraints, all_recipes=True),
    }
    for name, looser in loosened.items():
        pick = rankings.under(looser).pick(constraints.memory_bytes)
        is_better = pick is not None and constraints.gains(pick, best, WORTH_MENTIONING)
        if pick is not None and is_better and looser != constraints:
            found.append((name, pick))
    found += [("less memory", own) for own in _much_smaller(constraints, ranked)]
    return tuple(_alternative(constraints, best, *each) for each in found)


def _much_smaller(constraints: Constraints, ranked: Sequence[Offer]) -> list[Offer]:
    """The smallest that is nearly as good as the first, but much smaller, if there is any."""
    if not ranked:
        return []
    score, ceiling = constraints.score(ranked[0]), LESS_MEMORY * ranked[0].memory_bytes
    floor = score - NEARLY * abs(score)
    near = [own for own in ranked if constraints.score(own) >= floor]
    small = [own for own in near if own.memory_bytes <= ceiling]
    return sorted(small, key=attrgetter("memory_bytes"))[:1]


def _alternative(
    constraints: Constraints, best: Offer | None, constraint: Loosened, candidate: Offer
) -> Alternative:
    ratio = constraints.ratio(candidate, best)
    return Alternative(constraint=constraint, candidate=candidate, ratio=ratio)


def _more_memory(rankings: Rankings, constraints: Constraints, best: Offer | None) -> list[Offer]:
    """Two candidates beyond the memory limit: the smallest that gains enough, and the best."""
    limit = constraints.memory_bytes
    if limit is None:
        return []
    beyond = [own for own in rankings.under(constraints).ranked() if own.memory_bytes > limit]
    better = [own for own in beyond if constraints.gains(own, best, WORTH_MENTIONING)]
    if not better:
        return []
    smallest = min(better, key=attrgetter("memory_bytes"))
    return [smallest] if smallest is better[0] else [smallest, better[0]]


def _nearby_batches(
    rankings: Rankings, constraints: Constraints, best: Offer | None
) -> tuple[Alternative, ...]:
    """The nearest batch below the one asked for that trains much faster, and the nearest above."""
    wanted = constraints.effective_batch
    if wanted is None:
        return ()
    # Many batches are ranked, so each ranking is kept small.
    few = replace(rankings, configurations=_contenders(rankings.configurations, constraints))
    below: list[Alternative] = []
    above: list[Alternative] = []
    for effective_batch in _near(rankings.configurations, wanted):
        looser = replace(constraints, effective_batch=effective_batch)
        pick = few.under(looser).pick(constraints.memory_bytes)
        if pick is not None and constraints.gains(pick, best, WORTH_ANOTHER_BATCH):
            side = below if effective_batch < wanted else above
            side.append(_alternative(constraints, best, "nearby batch", pick))
    return (*_first_good(below[::-1], constraints), *_first_good(above, constraints))


def _first_good(side: Sequence[Alternative], constraints: Constraints) -> Sequence[Alternative]:
    """The first that is nearly as good as the best of them; empty if there is none."""
    scores = [constraints.score(batch.candidate) for batch in side]
    most = max(scores, default=0.0)
    floor = most - WORTH_ANOTHER_BATCH * abs(most)
    return [batch for batch, score in zip(side, scores, strict=True) if score >= floor][:1]


def _contenders(
    configurations: Iterable[Configuration], constraints: Constraints
) -> list[Configuration]:
    """The configurations that can be the best at some effective batch and memory budget: the Pareto
    front of those with equal micro-batch, accumulation, recipe and gradients, whose order another
    effective batch does not change."""

    def score(configuration: Configuration) -> float:
        return constraints.score(as_measured(configuration))

    by_soundness = grouped(configurations, attrgetter("trains_wrongly"))
    # Rows with wrong losses are kept, because they limit what may be inferred.
    contenders = by_soundness.get(True, [])
    equal = attrgetter("micro_batch", "accumulation", "training_recipe", "gradient_bytes")
    for members in grouped(by_soundness.get(False, []), equal).values():
        contenders += pareto_front(members, (little_memory, score))
    return contenders


def _near(configurations: Iterable[Configuration], wanted: int) -> list[int]:
    """The batches within ``REACH`` that can be made of measured micro-batches, in rising order."""
    batches = set()
    for configuration in configurations:
        micro_batch = configuration.micro_batch
        below = wanted // micro_batch * micro_batch
        batches |= {below, below + micro_batch, configuration.effective_batch}
    batches.discard(wanted)
    return [batch for batch in sorted(batches) if wanted / REACH <= batch <= wanted * REACH]
