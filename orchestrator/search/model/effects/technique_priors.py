"""The expected effect of each technique on speed, memory and trial time, before any measurement."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.search.model.arrays import Array
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.effects import unrecorded
from orchestrator.search.model.effects.similar_values import correlation
from orchestrator.search.model.effects.unrecorded import Effect

_FILE = Path(__file__).with_name("technique_priors.json")
"""Written by ``python -m tests.benchmarks.technique_priors`` from recorded tables."""

_UNKNOWN_DEVIATION_WITHOUT_TABLES = 0.7
"""Standard deviation of an unknown effect, which may be very large, without any table, as a
logarithm."""
_CORRELATION_WITHOUT_TABLES = 0.5
"""Correlation of the effects of two values of an axis if there are no tables: effects relative to
the same reference share half of their variance, the reference's own."""
_WORKS = {"recorded": 0.95, "similar": 0.85, "unknown": 0.7}
"""Probability that a technique works here if it, a similar one or neither ran on another model. The
last is low, so that new techniques are tried one by one."""

_LEAST_DEVIATION = 0.05
_DEVIATION_SHARE = 0.5
"""Standard deviation of the difference of two recorded effects on a new model: a constant, plus
this share of the recorded difference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniquePriors:
    """The recorded effects of techniques: axis -> value -> effect; of other values those of similar
    ones (``similar_values``), else the assumption in ``unrecorded``."""

    effects: Mapping[str, Mapping[str, Effect]] = field(default_factory=dict)
    knows_speeds: bool = True
    """Whether the effects on speed and memory are valid for this kind of machine."""
    _expected: dict[tuple[str, str], Effect] = field(
        default_factory=dict, compare=False, repr=False
    )

    def of(self, axis: str, value: Choice) -> Effect:
        """The effect of a value, compared with the default of its axis."""
        key = (axis, str(value))
        if key not in self._expected:
            self._expected[key] = self._effect(axis, value)
        return self._expected[key]

    def has(self, axis: str, value: Choice) -> bool:
        """Whether a table of this kind of machine has the value."""
        return self.knows_speeds and str(value) in self.effects.get(axis, {})

    def probability_to_work(self, axis: str, value: Choice) -> float:
        """Probability that a value works on a model on which it was never tried."""
        if str(value) in self.effects.get(axis, {}):
            return _WORKS["recorded"]
        return _WORKS["similar" if self._similar(axis, str(value)) else "unknown"]

    def between(self, axis: str, reference: Choice, value: Choice) -> Effect:
        """The effect of changing from one value of an axis to another."""
        if type(reference) is type(value) and reference == value:
            return Effect(deviation=0.0, memory_deviation=0.0)
        before = self.of(axis, reference)
        after = self.of(axis, value)
        # Both effects are relative to the same default, so their errors do not add up. The larger
        # deviation counts.
        deviation = max(before.deviation, after.deviation)
        if before.models and after.models:
            # Two values with nearly equal effects on other models, such as fp16 and bf16, are
            # expected to have nearly equal effects here.
            between = abs(after.log_time - before.log_time)
            deviation = min(deviation, _LEAST_DEVIATION + _DEVIATION_SHARE * between)
        samples_before, deviation_before = before.of_sample()
        samples_after, deviation_after = after.of_sample()
        return Effect(
            log_time=after.log_time - before.log_time,
            deviation=deviation,
            log_memory=after.log_memory - before.log_memory,
            memory_deviation=max(before.memory_deviation, after.memory_deviation),
            log_sample_memory=samples_after - samples_before,
            sample_memory_deviation=max(deviation_before, deviation_after),
            overhead_seconds=after.overhead_seconds - before.overhead_seconds,
            models=min(before.models, after.models),
        )

    def correlation(self, axis: str, first: Choice, second: Choice) -> float:
        """Prior correlation of the effects of two values, from 0 to 1."""
        is_same_type = type(first) is type(second)
        similar = correlation(str(first), str(second)) if is_same_type else 0.0
        has_tables = self.knows_speeds and self.effects
        return similar if has_tables else max(similar, _CORRELATION_WITHOUT_TABLES)

    def overheads_alone(self) -> TechniquePriors:
        """The same priors with overheads only, without effects on speed and memory."""
        return replace(self, knows_speeds=False, _expected={})

    def _effect(self, axis: str, value: Choice) -> Effect:
        recorded = self.effects.get(axis, {}).get(str(value))
        if self.knows_speeds and self.effects:
            return recorded or self._from_similar(axis, value)
        usual = unrecorded.expectation(axis, value)
        # Effects are relative to the default, so its own is zero by definition.
        is_default = axis in AXES and value == AXES[axis].default
        known = Effect(deviation=0.0 if is_default else _UNKNOWN_DEVIATION_WITHOUT_TABLES)
        # Techniques that are more work take more time on every machine.
        if unrecorded.is_more_work(axis, value):
            known = Effect(log_time=usual.log_time, deviation=usual.deviation)
        return replace(known, overhead_seconds=(recorded or usual).overhead_seconds)

    def _similar(self, axis: str, value: str) -> list[str]:
        """The recorded values of an axis whose effects correlate with that of a value."""
        recorded = self.effects.get(axis, {})
        # The default has no deviation: its effect is zero by definition, so it shows nothing.
        return [name for name in recorded if recorded[name].deviation and correlation(name, value)]

    def _from_similar(self, axis: str, value: Choice) -> Effect:
        """The expected effect of a value without a recorded effect: a small Gaussian process over
        similar values, with ``unrecorded`` as its mean."""
        prior = unrecorded.expectation(axis, value)
        similar = self._similar(axis, str(value))
        if not similar:
            return prior
        found = [(self.effects[axis][name], unrecorded.expectation(axis, name)) for name in similar]
        times = [recorded.log_time - usual.log_time for recorded, usual in found]
        memories = [recorded.log_memory - usual.log_memory for recorded, usual in found]
        to_similar = np.array([correlation(str(value), name) for name in similar])
        explained = _weights(similar, [recorded.models for recorded, _ in found], to_similar)
        # The effect also varies between models. This is assumed to be half of the variance, which
        # similar values do not reduce.
        left = math.sqrt(max(0.5, 1 - float(explained @ to_similar)))
        # If similar values vary more between models than assumed, this value may, too.
        spread = statistics.fmean(recorded.deviation for recorded, _ in found)
        return replace(
            prior,
            log_time=prior.log_time + float(explained @ times),
            deviation=max(prior.deviation, spread) * left,
            log_memory=prior.log_memory + float(explained @ memories),
            memory_deviation=prior.memory_deviation * left,
        )


def _weights(similar: list[str], models: list[int], to_similar: Array) -> Array:
    """Weights of recorded effects in a Gaussian process, shape (similar,)."""
    rows = [[correlation(one, other) for other in similar] for one in similar]
    # The effect on one model has the full variance between models; the mean of n models, 1 / n.
    noise = np.diag([1 / max(1, count) for count in models])
    return np.asarray(np.linalg.solve(np.array(rows) + noise, to_similar))


def read_priors(document: Mapping[str, Any]) -> TechniquePriors:
    """Priors from JSON values."""
    return TechniquePriors(
        effects={
            axis: {value: Effect(**fields) for value, fields in values.items()}
            for axis, values in document.items()
        }
    )


@cache
def shipped_priors() -> TechniquePriors:
    """The priors from all tables that come with the project."""
    return read_priors(json.loads(_FILE.read_text(encoding="utf-8")))


def priors_for(candidates: Sequence[Candidate]) -> TechniquePriors:
    """The shipped priors; without a GPU, only their overheads, because the tables are of GPUs."""
    has_gpu = not candidates or candidates[0].trials[0].needs.gpus > 0
    return shipped_priors() if has_gpu else shipped_priors().overheads_alone()
