"""The gain of a candidate over the default configuration: the ratios of speed and of memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.analysis.configuration import BATCH_AXES, Configuration
from orchestrator.analysis.environment_results import EnvironmentResults
from orchestrator.analysis.recommendation.offers import Offer, as_measured, candidates
from orchestrator.analysis.repeatability import difference_error


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """A candidate compared with the default configuration."""

    default: Offer
    """The default techniques at the candidate's effective batch, if that is known. Otherwise the
    baseline itself, or else the default techniques at their fastest batch."""
    candidate: Offer

    @property
    def is_same_batch(self) -> bool:
        """Whether both have the same effective batch."""
        return self.default.effective_batch == self.candidate.effective_batch

    @property
    def speed_ratio(self) -> float:
        """The candidate's samples per second divided by the default's."""
        default = self.default.configuration.samples_per_second
        return self.candidate.configuration.samples_per_second / default

    @property
    def is_within_chance(self) -> bool:
        """Whether two trials of one configuration may differ as much in speed.

        False if one of the speeds has no interval. Nothing is then known about chance.
        """
        before = self.default.configuration.speed_error
        after = self.candidate.configuration.speed_error
        half_width = difference_error(before, after).half_width95
        # The interval is that of the logarithm of a ratio, so the ratio's logarithm is compared.
        return math.isfinite(half_width) and abs(math.log(self.speed_ratio)) <= half_width

    @property
    def memory_ratio(self) -> float:
        """The candidate's memory divided by the default's."""
        return self.candidate.memory_bytes / self.default.memory_bytes

    @property
    def is_default(self) -> bool:
        """Whether the candidate is the default itself."""
        return self.default.measured.trial_ids == self.candidate.measured.trial_ids


class Defaults:
    """The configurations with the default techniques, which candidates are compared with."""

    def __init__(self, results: EnvironmentResults) -> None:
        self._baseline = results.baseline
        self._configurations = [
            each for each in results.sound if has_default_techniques(results, each)
        ]
        self._by_batch: dict[int, Offer | None] = {}

    def gain(self, candidate: Offer) -> Gain | None:
        """The gain of a candidate; None if the default techniques were not measured."""
        batch = candidate.effective_batch
        if batch not in self._by_batch:
            # The fastest measured split of this batch, else the fastest inferred one.
            at_batch = candidates(self._configurations, batch)
            measured = [each for each in at_batch if not each.is_inferred]
            # Else exactly the baseline, else the batch at which these techniques are fastest.
            exactly = [own for own in self._configurations if own.choices == self._baseline]
            elsewhere = map(as_measured, exactly[:1] or self._configurations)
            self._by_batch[batch] = _fastest(measured or at_batch or elsewhere)
        default = self._by_batch[batch]
        return None if default is None else Gain(default=default, candidate=candidate)


def has_default_techniques(results: EnvironmentResults, configuration: Configuration) -> bool:
    """Whether a configuration differs from the baseline in its batch alone."""
    return all(
        axis in BATCH_AXES or value == results.baseline[axis]
        for axis, value in configuration.choices.items()
    )


def _fastest(listed: Iterable[Offer]) -> Offer | None:
    return max(listed, key=lambda each: each.configuration.samples_per_second, default=None)
