"""What sharing a training between GPUs is expected to cost, from forecasts of step times."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from jobs.spec import Choice
from jobs.techniques.axes.sharding import SHARDING
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.effects import unrecorded
from orchestrator.search.model.effects.technique_priors import TechniquePriors

_DEVIATION = 0.2
"""Error of a forecast ratio of two times, as a logarithm: about two thirds of the recorded trials
on two GPUs are within it (tests/data/two_gpus_h100)."""


class ShardingForecast:
    """Makes the prior of times anew when another way of sharing has a forecast."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        seconds: Mapping[str, float],
        priors: TechniquePriors,
    ) -> None:
        self._candidates = candidates
        self._seconds = seconds
        self._priors = priors
        self._read_count = 0
        """Number of forecasts when they were last read."""
        self._known: set[str] = set()
        """The values that the latest prior has a forecast for."""

    def new_prior(self) -> CostPrior | None:
        """None if the prior of before still holds."""
        if self._read_count == len(self._seconds) or not self._priors.knows_speeds:
            return None
        self._read_count = len(self._seconds)
        effects = log_factors(self._candidates, dict(self._seconds))
        if effects.keys() <= self._known:
            return None
        self._known |= effects.keys()
        of_axis = {
            value: replace(
                unrecorded.expectation(SHARDING.name, value),
                log_time=effect,
                deviation=_DEVIATION,
            )
            for value, effect in effects.items()
        }
        priors = self._priors.with_effects(SHARDING.name, of_axis)
        return CostPrior(self._candidates, priors, is_time=True)


def log_factors(
    candidates: Sequence[Candidate], seconds: Mapping[str, float]
) -> Mapping[str, float]:
    """Way of sharing -> logarithm of its factor on the seconds of a pass, compared with the first
    candidate's way: the median over pairs that differ in nothing else."""
    groups: defaultdict[Hashable, dict[Choice, float]] = defaultdict(dict)
    for own in candidates:
        if own.trial_ids[0] in seconds:
            others = tuple(one for one in own.techniques if one[0] != SHARDING.name)
            way = own.trials[0].choices.get(SHARDING.name, SHARDING.default)
            key = (others, own.micro_batch, own.accumulation)
            groups[key][way] = math.log(seconds[own.trial_ids[0]])
    first = candidates[0].trials[0].choices.get(SHARDING.name, SHARDING.default)
    factors: defaultdict[str, list[float]] = defaultdict(list)
    for group in groups.values():
        if first in group and len(group) > 1:
            for way, log_seconds in group.items():
                factors[str(way)].append(log_seconds - group[first])
    return {way: statistics.median(own) for way, own in factors.items()}
