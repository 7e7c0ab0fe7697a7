"""The audit: some skipped candidates, drawn at random, are measured to check the search."""

import math
import random
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.search.model.measurements import Measurement

MIN_AUDITS = 2
"""Audits that run whatever they cost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedTrial:
    """What was expected of a candidate, and why it was skipped."""

    rule: str
    memory_bytes: float
    most_bytes: float
    """The memory, with its uncertainty and the tolerance added."""
    samples_per_second: float


@dataclass(frozen=True, slots=True)
class Audit:
    """A candidate that was skipped, and measured after all."""

    trial_id: str
    rule: str
    """Why it was skipped."""
    memory_error: float | None
    """Predicted memory / measured memory - 1; None if nothing was measured."""
    speed_error: float | None
    """Predicted speed / measured speed - 1."""
    contradicts: bool
    """It belonged on the front beyond the tolerance, or ran though it should not have."""


class Auditor:
    """Draws audits and keeps their results: of a ``fraction`` of the skipped candidates, in at most
    this share of the search's slot time. The first ``MIN_AUDITS`` run whatever they cost."""

    def __init__(self, candidates: int, fraction: float, seed: int) -> None:
        self._fraction = fraction
        draw = random.Random(seed)
        # ``random`` may return 0 but never 1, so the logarithm is finite.
        self._log_draws = [math.log(1 - draw.random()) for _ in range(candidates)]
        """Logarithms of uniform draws, all below zero; the weight of a draw is its slot time."""
        self.expected: dict[int, ExpectedTrial] = {}
        """Audited candidate -> what was expected of it."""
        self.audits: dict[int, Audit] = {}
        """Audited candidate -> what its first trial showed."""
        self._all_seconds = 0.0
        self._audit_seconds = 0.0

    def is_awaited(self, index: int) -> bool:
        """Whether a candidate is audited and has no result yet."""
        return index in self.expected and index not in self.audits

    def spend(self, index: int, slot_seconds: float) -> None:
        self._all_seconds += slot_seconds
        if index in self.expected:
            self._audit_seconds += slot_seconds

    def draw(self, seconds: Mapping[int, float]) -> int | None:
        """The next candidate to audit, by the expected slot time of every skipped one; None for no
        more."""
        if not seconds or not self._fraction:
            return None
        # Weighted sampling without replacement (Efraimidis and Spirakis, 2006): the largest
        # log(u) / w wins. The weight is 1 / seconds, so cheap candidates are drawn more often.
        drawn = max(seconds, key=lambda index: self._log_draws[index] * seconds[index])
        audited = len(self.expected)
        # The fraction counts every candidate that was ever skipped.
        wanted = max(MIN_AUDITS, math.ceil(self._fraction * (len(seconds) + audited)))
        if self._audit_seconds + seconds[drawn] > self._fraction * self._all_seconds:
            wanted = MIN_AUDITS
        return drawn if audited < wanted else None

    def add_result(
        self, index: int, trial_id: str, measurement: Measurement | None, contradicts: bool
    ) -> None:
        expected = self.expected[index]
        memory_error = speed_error = None
        if measurement is not None:
            memory_error = expected.memory_bytes / measurement.memory_bytes - 1
            speed_error = expected.samples_per_second / measurement.samples_per_second - 1
        self.audits[index] = Audit(trial_id, expected.rule, memory_error, speed_error, contradicts)

    def summary(self, tolerance: float) -> dict[str, Any]:
        """JSON values: numbers of audits and contradictions, errors of predictions."""
        audits = self.audits.values()
        return {
            "audited": len(audits),
            "contradicted": sum(audit.contradicts for audit in audits),
            "tolerance": tolerance,
            "memory_error": _median_and_largest(audit.memory_error for audit in audits),
            "speed_error": _median_and_largest(audit.speed_error for audit in audits),
        }


def _median_and_largest(errors: Iterable[float | None]) -> dict[str, float] | None:
    """Of the absolute errors; None if there are none."""
    sizes = [abs(error) for error in errors if error is not None]
    if not sizes:
        return None
    return {"median": statistics.median(sizes), "largest": max(sizes)}
