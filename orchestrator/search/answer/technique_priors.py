"""What a technique is expected to do to speed and to a trial's time, before it is measured here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jobs.spec import Choice

_FILE = Path(__file__).with_name("technique_priors.json")
"""Written by ``python -m tests.benchmarks.technique_priors`` from recorded tables."""

UNKNOWN_DEVIATION = 0.35
"""Expected deviation of the effect of a technique that no table has, as a logarithm of time."""
UNKNOWN_DEVIATION_WITHOUT_TABLES = 0.7
"""The same where no table has any technique: it may be one that changes the speed most."""
WORKS_IF_RECORDED = 0.95
"""Probability that a technique works on this model that ran on another one."""
WORKS_IF_UNKNOWN = 0.7
"""The same of a technique that no table has. Low, so that new techniques are tried one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What recorded tables say of one technique, compared with the default of its axis."""

    log_time: float = 0.0
    """Logarithm of the factor by which it changes the seconds of a sample."""
    deviation: float = UNKNOWN_DEVIATION
    """How far another model's factor is from it, as a logarithm."""
    overhead_seconds: float = 0.0
    """Seconds that a trial with it takes besides its steps, more than with the default."""
    models: int = 0
    """Number of models that it was measured on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniquePriors:
    """Axis -> value -> its effect. What has no entry is unknown."""

    effects: Mapping[str, Mapping[str, Effect]] = field(default_factory=dict)

    def of(self, axis: str, value: Choice) -> Effect:
        """The effect of a value, compared with the default of its axis."""
        unknown = Effect()
        if not self.effects:
            unknown = Effect(deviation=UNKNOWN_DEVIATION_WITHOUT_TABLES)
        return self.effects.get(axis, {}).get(str(value), unknown)

    def probability_to_work(self, axis: str, value: Choice) -> float:
        """That a value works on a model on which it was never tried."""
        if self.of(axis, value).models:
            return WORKS_IF_RECORDED
        return WORKS_IF_UNKNOWN

    def between(self, axis: str, reference: Choice, value: Choice) -> Effect:
        """The effect of changing from one value of an axis to another."""
        if type(reference) is type(value) and reference == value:
            return Effect(deviation=0.0)
        before = self.of(axis, reference)
        after = self.of(axis, value)
        return Effect(
            log_time=after.log_time - before.log_time,
            # The larger one: both are compared with the same default, so errors do not add up.
            deviation=max(before.deviation, after.deviation),
            overhead_seconds=after.overhead_seconds - before.overhead_seconds,
            models=min(before.models, after.models),
        )

    def overheads_alone(self) -> TechniquePriors:
        """What trials take besides their steps, without any expected effect on speed."""
        effects = {}
        for axis, values in self.effects.items():
            effects[axis] = {value: _overhead_alone(effect) for value, effect in values.items()}
        return TechniquePriors(effects=effects)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as the file holds them."""
        document: dict[str, Any] = {}
        for axis, effects in self.effects.items():
            document[axis] = {value: _effect_json(effect) for value, effect in effects.items()}
        return document


def _overhead_alone(effect: Effect) -> Effect:
    return Effect(
        deviation=UNKNOWN_DEVIATION_WITHOUT_TABLES, overhead_seconds=effect.overhead_seconds
    )


def _effect_json(effect: Effect) -> dict[str, Any]:
    return {
        "log_time": round(effect.log_time, 4),
        "deviation": round(effect.deviation, 4),
        "overhead_seconds": round(effect.overhead_seconds, 2),
        "models": effect.models,
    }


def read_priors(document: Mapping[str, Any]) -> TechniquePriors:
    """Priors from JSON values."""
    effects = {}
    for axis, values in document.items():
        effects[axis] = {value: Effect(**fields) for value, fields in values.items()}
    return TechniquePriors(effects=effects)


@cache
def shipped_priors() -> TechniquePriors:
    """The priors from all tables that come with the project."""
    return read_priors(json.loads(_FILE.read_text(encoding="utf-8")))
