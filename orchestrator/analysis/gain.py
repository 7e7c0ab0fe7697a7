"""The gain of a candidate over the default configuration: the ratios of speed and of memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.analysis.accumulation import Candidate, as_measured, candidates
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.analysis.repeatability import difference_error

_BATCH_AXES = ("micro_batch", "accumulation")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """A candidate compared with the default configuration."""

    default: Candidate
    """The default techniques at the candidate's effective batch, if that is known.

    Otherwise the baseline itself, or else the default techniques at their fastest batch.
    """
    candidate: Candidate
    is_same_batch: bool
    """Whether both have the same effective batch."""

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
        # A run without a GPU may have measured no memory at all.
        default = max(self.default.configuration.memory_bytes, 1)
        return self.candidate.configuration.memory_bytes / default

    @property
    def is_default(self) -> bool:
        """Whether the candidate is the default itself."""
        return self.default.measured.trial_ids == self.candidate.measured.trial_ids


class Defaults:
    """The configurations with the default techniques, which candidates are compared with."""

    def __init__(self, results: EnvironmentResults) -> None:
        self._baseline = dict(results.baseline)
        self._configurations = []
        for configuration in results.sound:
            if has_default_techniques(results, configuration):
                self._configurations.append(configuration)
        self._by_batch: dict[int, Candidate | None] = {}

    def gain(self, candidate: Candidate) -> Gain | None:
        """The gain of a candidate; None if the default techniques were not measured."""
        default = self._at(candidate.effective_batch)
        if default is not None:
            return Gain(default=default, candidate=candidate, is_same_batch=True)
        default = self._elsewhere()
        if default is None:
            return None
        return Gain(default=default, candidate=candidate, is_same_batch=False)

    def _at(self, effective_batch: int) -> Candidate | None:
        """The fastest measured split of an effective batch, else the fastest inferred one."""
        if effective_batch not in self._by_batch:
            at_batch = candidates(self._configurations, effective_batch)
            measured = [split for split in at_batch if not split.is_inferred]
            self._by_batch[effective_batch] = _fastest(measured) or _fastest(at_batch)
        return self._by_batch[effective_batch]

    def _elsewhere(self) -> Candidate | None:
        """Exactly the baseline, else the batch at which the default techniques are fastest."""
        for configuration in self._configurations:
            if dict(configuration.choices) == self._baseline:
                return as_measured(configuration)
        return _fastest(map(as_measured, self._configurations))


def has_default_techniques(results: EnvironmentResults, configuration: Configuration) -> bool:
    """Whether a configuration differs from the baseline in its batch alone."""
    for axis, value in configuration.choices.items():
        if axis not in _BATCH_AXES and value != results.baseline[axis]:
            return False
    return True


def _fastest(listed: Iterable[Candidate]) -> Candidate | None:
    return max(listed, key=_speed, default=None)


def _speed(candidate: Candidate) -> float:
    return candidate.configuration.samples_per_second
