"""The gain of a candidate over the default configuration: the ratios of speed and of memory."""

import math
from dataclasses import dataclass
from operator import attrgetter

from jobs.techniques import BATCH_AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.environment_results import EnvironmentResults
from orchestrator.analysis.recommendation.offers import Offer, as_measured, candidates
from orchestrator.analysis.repeatability import difference_error


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """A candidate compared with the default configuration."""

    default: Offer
    """The default techniques at the candidate's effective batch if that is known, else the baseline
    itself, else the default techniques at their fastest batch."""
    speed_ratio: float
    """Samples per second, divided by the default's."""
    memory_ratio: float
    is_default: bool
    is_same_batch: bool
    is_within_chance: bool
    """Whether two trials of one configuration may differ as much in speed; False if not known."""


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
            listed = measured or at_batch or elsewhere
            speed = attrgetter("configuration.samples_per_second")
            self._by_batch[batch] = max(listed, key=speed, default=None)
        default = self._by_batch[batch]
        if default is None:
            return None
        before, after = default.configuration, candidate.configuration
        speed_ratio = after.samples_per_second / before.samples_per_second
        # The interval is that of the logarithm of a ratio, so the ratio's logarithm is compared.
        half_width = difference_error(before.speed_error, after.speed_error).half_width95
        return Gain(
            default=default,
            speed_ratio=speed_ratio,
            memory_ratio=candidate.memory_bytes / default.memory_bytes,
            is_default=default.measured.trial_ids == candidate.measured.trial_ids,
            is_same_batch=default.effective_batch == candidate.effective_batch,
            is_within_chance=math.isfinite(half_width) and abs(math.log(speed_ratio)) <= half_width,
        )


def has_default_techniques(results: EnvironmentResults, configuration: Configuration) -> bool:
    """Whether a configuration differs from the baseline in its batch alone."""
    choices = configuration.choices.items()
    return all(own == results.baseline[axis] for axis, own in choices if axis not in BATCH_AXES)
