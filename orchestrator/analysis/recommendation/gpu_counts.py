"""One GPU or two? The best configuration on each number of GPUs, where a run has several."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.recommendation.offers import Offer
from orchestrator.analysis.recommendation.ranking import Constraints, Rankings


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
