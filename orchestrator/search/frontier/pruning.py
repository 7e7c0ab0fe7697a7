"""What a frontier search has measured, and which configurations that rules out: one method a rule, with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.record import Outcome, TrialRecord
from orchestrator.search.frontier.configurations import Configuration, Key, Measured
from orchestrator.search.frontier.similarity import Array, asking_no_more
from orchestrator.search.frontier.surrogate import Prediction, Surfaces

_GIB = 2**30
CERTAINTY = 2.5
"""Standard deviations to the best case of a configuration: one in 160 is better than that."""
REACH = 16
"""A prediction speaks of micro-batches up to so many times the largest that was run on the curve or its donor: a curve
seen only on its floor says nothing of where it leaves it."""
HOSTS_PACE = 0.1
"""What a host's pace differs by from trial to trial: of two speeds of its own that are nearer, neither is better."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a configuration is left out."""

    rule: str
    reason: str
    margin: float | None = None
    """It was wrong if the configuration is faster than all that need no more memory by over this share; None: if it
    fits."""


class Evidence:
    """``predicted`` has trials' bytes as foretold without measuring; it may grow meanwhile."""

    def __init__(
        self, planned: Sequence[Configuration], predicted: Mapping[str, float], tolerance: float
    ) -> None:
        self._planned, self._tolerance = planned, tolerance
        self._row = {one: row for row, one in enumerate(planned)}
        self._surfaces = Surfaces(planned, predicted)
        self._no_more = asking_no_more(planned)
        self._largest: dict[Key, int] = {}
        self._too_large: dict[Key, list[tuple[Configuration, str]]] = {}
        self._device_bytes = 0
        self.found: dict[Configuration, Measured] = {}
        """What was measured, of what was measured well."""
        self._leads = np.zeros((len(planned), 0))

    def ran(self, configuration: Configuration, record: TrialRecord) -> None:
        """A trial of a configuration ended, however it did."""
        self._largest[configuration.curve] = max(
            self._largest.get(configuration.curve, 0), configuration.micro_batch
        )
        self._device_bytes = max(
            self._device_bytes, int(record.environment.get("gpu_memory_bytes") or 0)
        )
        if record.outcome is Outcome.OUT_OF_MEMORY:
            self._too_large.setdefault(configuration.techniques, []).append(
                (configuration, record.trial_id)
            )

    def put(self, configuration: Configuration, found: Measured) -> None:
        """What a configuration was measured to need and give, in place of what was known of it."""
        self.found[configuration] = found
        self._surfaces.put(configuration, found)

    def predict(self) -> dict[Configuration, Prediction]:
        """Of every configuration; empty where nothing is known. Verdicts are from what was measured by then."""
        predicted = self._surfaces.predict(CERTAINTY)
        if predicted:
            self._leads = self.leads(self._planned, list(self.found))
        return predicted

    def leads(self, ones: Sequence[Configuration], others: Sequence[Configuration]) -> Array:
        """At most how many times as fast each is as each of the others (``Surfaces.leads``)."""
        return self._surfaces.leads(ones, others, CERTAINTY)

    def against(self, configuration: Configuration, predicted: Prediction | None) -> Verdict | None:
        """Why it need not be measured, if so; without a prediction only what surely needs no more memory tells."""
        if (verdict := self._out_of_memory_below(configuration)) is not None or predicted is None:
            return verdict
        run = max(
            self._largest.get(configuration.curve, 0), self._largest.get(configuration.donor, 0)
        )
        if configuration.micro_batch > REACH * run:
            return None
        rules = (self._more_than_the_device, self._dominated, self._host_bound)
        return next(
            (found for rule in rules if (found := rule(configuration, predicted)) is not None), None
        )

    def contradicts(self, verdict: Verdict, configuration: Configuration, found: Measured) -> bool:
        """Whether it was wrong to leave a configuration out, now that it is measured."""
        rivals = (
            one.samples_per_second for _, _, one in self._within(configuration, found.memory_bytes)
        )
        return (
            verdict.margin is None
            or max(rivals, default=0.0) < (1 - verdict.margin) * found.samples_per_second
        )

    def _out_of_memory_below(self, configuration: Configuration) -> Verdict | None:
        for other, trial_id in self._too_large.get(configuration.techniques, ()):
            if _needs_no_less(configuration, other):
                reason = f"micro-batch {other.micro_batch} of the same techniques ran out of memory in trial {trial_id}"
                return Verdict("out_of_memory_below", reason)
        return None

    def _more_than_the_device(
        self, configuration: Configuration, predicted: Prediction
    ) -> Verdict | None:
        if not 0 < self._device_bytes < predicted.memory_low:
            return None
        near = [
            found
            for one, found in self.found.items()
            if one.curve in (configuration.curve, configuration.donor)
        ]
        trials = ", ".join(found.trial_id for found in near or self.found.values())
        reason = f"{_at_least(predicted)} of {self._device_bytes / _GIB:.2f}, as trials {trials} foretell"
        return Verdict("more_than_the_device", reason)

    def _dominated(self, configuration: Configuration, predicted: Prediction) -> Verdict | None:
        """By a measured point that even its best case does not beat by the tolerance. One that was unlucky, slower than
        this is likely to be, rules out nothing."""
        usual, leads = (
            (1 - self._tolerance) * predicted.speed,
            self._leads[self._row[configuration]],
        )
        rivals = (
            (leads[column], found)
            for column, _, found in self._within(configuration, predicted.memory_low)
            if found.samples_per_second >= usual
        )
        lead, best = min(rivals, key=lambda rival: rival[0], default=(np.inf, None))
        if best is None or (1 - self._tolerance) * lead > 1:
            return None
        reason = (
            f"{_at_least(predicted)} and reach at most {predicted.speed_high:.1f} samples/s, and is at most {lead:.3f}"
            f" times as fast as {_measured(best)}: no better by more than {self._tolerance:.1%}"
        )
        return Verdict("dominated", reason, self._tolerance)

    def _host_bound(self, configuration: Configuration, predicted: Prediction) -> Verdict | None:
        """A measured point's speed was all the host's, of whom it asks no more. One that was unlucky, slower than this
        is likely to be by more than a host's pace differs, rules out nothing."""
        usual = (1 - HOSTS_PACE) * predicted.speed
        for _, one, found in self._within(configuration, predicted.memory_low):
            is_the_hosts = found.host_bound_share == 1 and found.samples_per_second >= usual
            if is_the_hosts and one in self._no_more[configuration]:
                reason = (
                    f"{_at_least(predicted)} and reach at most {(1 + HOSTS_PACE) * found.samples_per_second:.1f}"
                    f" samples/s: it asks no less of the host than {_measured(found)}, whose GPU waited for the host in"
                    f" every micro-batch"
                )
                return Verdict("host_bound", reason, HOSTS_PACE)
        return None

    def _within(
        self, configuration: Configuration, memory_bytes: float
    ) -> Iterator[tuple[int, Configuration, Measured]]:
        """The measured points of its kind of training that take no more memory, within the tolerance, and their places
        among all that were measured."""
        most = (1 + self._tolerance) * memory_bytes
        for place, (one, found) in enumerate(self.found.items()):
            if one.training == configuration.training and found.memory_bytes <= most:
                yield place, one, found


def _at_least(predicted: Prediction) -> str:
    return f"it would need at least {predicted.memory_low / _GIB:.2f} GiB"


def _measured(found: Measured) -> str:
    memory, speed = found.memory_bytes / _GIB, found.samples_per_second
    return f"trial {found.trial_id}, measured at {memory:.2f} GiB and {speed:.1f} samples/s"


def _needs_no_less(configuration: Configuration, other: Configuration) -> bool:
    """Whether it surely needs as much memory as another of the same techniques."""
    if configuration.micro_batch < other.micro_batch:
        return False
    return configuration.curve == other.curve or configuration.accumulation >= other.accumulation
