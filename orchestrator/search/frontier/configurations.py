"""The trials of a plan as the search sees them: repeats together, on curves along the micro-batch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from jobs.steady_state import launch_bound_share

Key = tuple[object, ...]

_BATCH = ("micro_batch", "accumulation")
OPTIMIZER = "optimizer"
_FREE = ("activations", "precision")
"""Axes that leave an optimizer's states and its step alone, unless they make another training of it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Configuration:
    """One point of the plan with all its repeats."""

    trials: tuple[TrialSpec, ...]
    trial_ids: tuple[str, ...]
    training: str
    """Its kind of training: the equivalence without the effective batch."""
    techniques: Key
    """Every choice but the batch's."""
    curve: Key
    """What shares its techniques and its accumulation (or effective batch): only the micro-batch differs."""
    donor: Key
    """The same curve with the plan's first optimizer."""
    family: Key
    """Curves on which an optimizer costs the same: those of the same training that differ in ``_FREE`` axes alone."""
    micro_batch: int
    accumulation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a configuration was measured to need and give: the largest memory and median speed of its repeats."""

    memory_bytes: float
    samples_per_second: float
    trial_id: str
    speed_error: float = 0.0
    """How far the speed may be off, relative, as the rows themselves say (95 % confidence)."""
    host_bound_share: float | None = None
    """How far it is the host's speed: the share of the micro-batches after which the device ran dry; None where that
    cannot be told."""
    launch_bound_share: float = 0.0
    """At most so much of its time the device waited for the host in the midst of a step."""


def kind_of_training(equivalence: str) -> str:
    """An equivalence without its effective batch; "" where nothing else sets it apart."""
    parts = equivalence.split(" · ")
    return " · ".join(
        part
        for part in parts
        if part not in ("", "exact") and not part.startswith("effective_batch=")
    )


def configurations(trials: Iterable[TrialSpec]) -> tuple[Configuration, ...]:
    """The plan's configurations, in its order."""
    planned = list(trials)
    groups: dict[Key, list[TrialSpec]] = {}
    for trial in planned:
        groups.setdefault((_techniques(trial), trial.micro_batch, trial.accumulation), []).append(
            trial
        )
    firsts = [group[0] for group in groups.values()]
    sizes: dict[Key, int] = {}
    for trial in firsts:
        for regime in _regimes(trial):
            key = (_techniques(trial), regime)
            sizes[key] = sizes.get(key, 0) + 1
    default = planned[0].choices.get(OPTIMIZER) if planned else None
    return tuple(_configuration(group, sizes, default) for group in groups.values())


def _configuration(group: list[TrialSpec], sizes: dict[Key, int], default: object) -> Configuration:
    first = group[0]
    regime = max(_regimes(first), key=lambda regime: sizes[_techniques(first), regime])
    return Configuration(
        trials=tuple(group),
        trial_ids=tuple(trial.trial_id for trial in group),
        training=kind_of_training(first.equivalence),
        techniques=_techniques(first),
        curve=(_techniques(first), regime),
        donor=(
            _techniques(first, {OPTIMIZER: default} if OPTIMIZER in first.choices else {}),
            regime,
        ),
        family=(kind_of_training(first.equivalence), _techniques(first, dict.fromkeys(_FREE))),
        micro_batch=first.micro_batch,
        accumulation=first.accumulation,
    )


def _techniques(trial: TrialSpec, other: dict[str, object] | None = None) -> Key:
    """Every choice but the batch's, some replaced. The type tells 1 from True."""
    chosen = {**trial.choices, **(other or {})}
    return tuple(
        (axis, type(chosen[axis]).__name__, chosen[axis])
        for axis in sorted(chosen)
        if axis not in _BATCH
    )


def _regimes(trial: TrialSpec) -> tuple[Key, ...]:
    """What may stay the same along a curve. Gradients that are kept for a second forward pass are memory of their
    own, so one pass a step is never on a curve with several."""
    if trial.accumulation == 1:
        return (("accumulation", 1),)
    return (("accumulation", trial.accumulation), ("effective_batch", trial.effective_batch))


def measured(records: Iterable[TrialRecord]) -> Measured | None:
    """The ok repeats of a configuration combined; None where none has both figures."""
    figures = [found for record in records if (found := _figures(record)) is not None]
    if not figures:
        return None
    return Measured(
        memory_bytes=max(found.memory_bytes for found in figures),
        samples_per_second=statistics.median(found.samples_per_second for found in figures),
        trial_id=figures[0].trial_id,
        speed_error=max(found.speed_error for found in figures),
        host_bound_share=max(
            (found.host_bound_share for found in figures if found.host_bound_share is not None),
            default=None,
        ),
        launch_bound_share=max(found.launch_bound_share for found in figures),
    )


def _figures(record: TrialRecord) -> Measured | None:
    if record.outcome is not Outcome.OK:
        return None
    memory = record.measurements.get("device_peak_bytes") or record.measurements.get(
        "peak_allocated_bytes"
    )
    speed = record.measurements.get("samples_per_second")
    if (
        not memory
        or not speed
        or not math.isfinite(memory)
        or not math.isfinite(speed)
        or min(memory, speed) <= 0
    ):
        return None
    error = record.measurements.get("samples_per_second_ci95") or 0.0
    return Measured(
        memory_bytes=float(memory),
        samples_per_second=float(speed),
        trial_id=record.trial_id,
        speed_error=float(error) if math.isfinite(error) else 0.0,
        host_bound_share=record.measurements.get("host_bound_share"),
        launch_bound_share=launch_bound_share(record.measurements),
    )
