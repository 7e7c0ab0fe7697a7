"""SIMULATED in part: a decoder of 1.2 B parameters, in every configuration that `tune` considers.

What the recorded run measured is as recorded: its speeds and peaks, between its sizes on straight
lines. Everything else is a recorded configuration times the factors of `techniques.py`.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from jobs.record import Outcome, Provenance, TrialRecord
from jobs.spec import Choice, TrialSpec
from jobs.techniques import AXES
from orchestrator.storage.run_reader import read_run_folder
from orchestrator.units import GIB
from tests.benchmarks.tuned.techniques import (
    CHECKPOINT_COMPILED_SECONDS,
    DRAWN_DEVIATION,
    EFFECTS,
    FUSED_KERNELS_COMPILED,
    FUSED_LOSS_COMPILED,
    FUSED_LOSSES,
    PAIR_DEVIATION,
    SimulatedEffect,
    drawn_factor,
)

RUN = Path(__file__).parents[3] / "docs" / "results" / "2026-11-23-llm_1b-h200"
DEVICE_BYTES = 143_771 * 2**20
_WITHOUT_A_CURVE = {
    "checkpoint_selective": "keep",
    "offload": "keep",
    "checkpoint_offload_streams": "checkpoint",
}
"""Value of the axis activations -> the recorded value whose curve it begins from."""
_SHAPE_AXES = ("compile", "activations", "loss")
"""Axes with recorded rows: their values choose the recorded curve to begin with."""
_OUT_OF_MEMORY_SECONDS = 2.5
_UNSUPPORTED_SECONDS = 0.6
_START_SECONDS = 0.7
"""Of an eager trial before its first step: process, model, data."""
_FLOORS = {"keep": 0.075, "checkpoint": 0.136, "compiled": 0.060}
"""Seconds that the host takes for a step: recorded micro-batches of 2, and a compiled model."""
_HOST_BOUND = 0.95
"""A row is flagged as host-bound if its host takes more than this share of a step. The recorded row
of checkpointing at micro-batch 2 is flagged, and that of keeping all is not."""
_LOGITS_EAGER = 1.1
"""Eager code saves this many times the logits that compiled code saves (facts of the model)."""
_LEAST_GIB = 19.2
"""16 bytes for each of 1.24 B parameters, and the context: weights, gradients, optimizer states."""

Key = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A recorded set of techniques at several micro-batches, ascending."""

    sizes: Sequence[float]
    seconds: Sequence[float]
    """Of a step."""
    memory_bytes: Sequence[float]
    first_seconds: Sequence[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    seconds: float
    """Of a step; 0 for one that does not run."""
    memory_bytes: float
    first_seconds: float
    build_seconds: float = 0.0
    """Of what the first trial with it builds."""
    is_host_bound: bool = False


@cache
def recorded_curves(run: Path = RUN) -> Mapping[Key, Curve]:
    """(compile, activations, loss) -> its recorded rows, other techniques as by default."""
    points: dict[Key, list[tuple[float, float, float, float]]] = {}
    trials = read_run_folder(run).trials
    for row in trials.rows:
        plain = (row["kernels"], row["attention"], row["allocator"]) == ("none", "auto", "default")
        if row["outcome"] != Outcome.OK or not plain or row["purpose"] != "search":
            continue
        key = (row["compile"], row["activations"], row["loss"])
        step = row["effective_batch"] / row["samples_per_second"]
        point = (row["micro_batch"], step, row["device_peak_bytes"], row["first_step_seconds"])
        points.setdefault(key, []).append(point)
    curves = {}
    for key, listed in points.items():
        columns = list(zip(*sorted(listed), strict=True))
        curves[key] = Curve(
            sizes=columns[0], seconds=columns[1], memory_bytes=columns[2], first_seconds=columns[3]
        )
    return curves


def along(sizes: Sequence[float], values: Sequence[float], size: float) -> float:
    """Straight lines between recorded sizes, and on beyond the first and the last two."""
    if len(sizes) == 1:
        return values[0] * size / sizes[0]
    if size < sizes[0]:
        first, second = 0, 1
    elif size > sizes[-1]:
        first, second = -2, -1
    else:
        return float(np.interp(size, sizes, values))
    slope = (values[second] - values[first]) / (sizes[second] - sizes[first])
    return float(values[first] + slope * (size - sizes[first]))


def truth_of(choices: Mapping[str, Choice], seed: int) -> Truth:
    """What a configuration does in one draw, without noise. The same seed is the same decoder."""
    effects = _effects(choices)
    size = float(choices["micro_batch"])
    seconds, memory, first = _shape(choices, size)
    _, empty, _ = _shape(choices, 0.0)
    saved = memory - empty
    for (axis, value), effect in effects.items():
        seconds *= effect.time * drawn_factor(seed, DRAWN_DEVIATION, axis, value)
        saved *= effect.saved
    seconds *= _together(choices, effects, seed)
    fixed = GIB * sum(effect.fixed_gib for effect in effects.values())
    step_seconds = sum(effect.step_seconds for effect in effects.values())
    floor = _floor(choices)
    runs = all(effect.outcome is Outcome.OK for effect in effects.values())
    return Truth(
        seconds=runs * (max(seconds, floor) + step_seconds),
        memory_bytes=max(empty + fixed + saved, _LEAST_GIB * GIB + fixed),
        first_seconds=first + sum(effect.first_seconds for effect in effects.values()),
        build_seconds=max((effect.build_seconds for effect in effects.values()), default=0.0),
        is_host_bound=floor > _HOST_BOUND * seconds,
    )


def _effects(choices: Mapping[str, Choice]) -> dict[tuple[str, str], SimulatedEffect]:
    effects = {}
    for axis, values in EFFECTS.items():
        value = str(choices.get(axis))
        if value in values:
            effects[axis, value] = values[value]
    return effects


def _shape(choices: Mapping[str, Choice], size: float) -> tuple[float, float, float]:
    """Seconds of a step, bytes, and seconds of the first step, before unrecorded factors."""
    curves = recorded_curves()
    activations = str(choices["activations"])
    loss = "plain" if choices["loss"] == "plain" else "chunked"
    if choices["compile"] == "none":
        # Rows without a curve of their own have a factor in EFFECTS.
        curve = curves["none", _WITHOUT_A_CURVE.get(activations, activations), "plain"]
        seconds, memory, first = _of(curve, size)
        if loss == "chunked":
            memory -= _LOGITS_EAGER * _logits(size)
        return seconds, memory, first
    if activations.startswith("budget_"):
        return _budget(float(activations.removeprefix("budget_")), loss, size)
    seconds, memory, first = _of(curves["inductor_regional", "keep", loss], size)
    if activations.startswith("checkpoint"):
        # As in eager code: what checkpointing costs there, it costs compiled code.
        kept_seconds, kept_memory, _ = _of(curves["none", "keep", "plain"], size)
        eager_seconds, eager_memory, _ = _of(curves["none", "checkpoint", "plain"], size)
        seconds *= eager_seconds / kept_seconds
        memory *= min(1.0, eager_memory / kept_memory)
        first += CHECKPOINT_COMPILED_SECONDS
    return seconds, memory, first


def _together(
    choices: Mapping[str, Choice], effects: Mapping[tuple[str, str], SimulatedEffect], seed: int
) -> float:
    """The factor beyond the product of single effects; 1 where rows were recorded."""
    factor = 1.0
    changed = [axis for axis in _SHAPE_AXES if choices[axis] != AXES[axis].default]
    names = sorted({*effects, *((axis, str(choices[axis])) for axis in changed)})
    for first, second in itertools.combinations(names, 2):
        # Two recorded techniques are as they were recorded together.
        if first in effects or second in effects:
            factor *= drawn_factor(seed, PAIR_DEVIATION, *first, *second)
    if choices["compile"] != "none" and choices["loss"] in FUSED_LOSSES:
        factor *= FUSED_LOSS_COMPILED
    if choices["compile"] != "none" and choices["kernels"] != "none":
        factor *= FUSED_KERNELS_COMPILED
    return factor


def _of(curve: Curve, size: float) -> tuple[float, float, float]:
    seconds = max(1e-3, along(curve.sizes, curve.seconds, size))
    memory = along(curve.sizes, curve.memory_bytes, size)
    first = float(np.interp(size, curve.sizes, curve.first_seconds))
    return seconds, memory, first


def _logits(size: float) -> float:
    """Bytes that compiled code saves for the logits."""
    curves = recorded_curves()
    _, plain, _ = _of(curves["inductor_regional", "keep", "plain"], size)
    _, chunked, _ = _of(curves["inductor_regional", "keep", "chunked"], size)
    return plain - chunked


def _budget(budget: float, loss: str, size: float) -> tuple[float, float, float]:
    """Between the recorded budgets 0.05 and 0.5, and from there to keeping all."""
    curves = recorded_curves()
    recorded = {0.05: "budget_0.05", 0.5: "budget_0.5", 1.0: "keep"}
    columns = []
    for name in recorded.values():
        columns.append(_of(curves["inductor_regional", name, loss], size))
    shares = list(recorded)
    values = [float(np.interp(budget, shares, column)) for column in zip(*columns, strict=True)]
    return values[0], values[1], values[2]


def _floor(choices: Mapping[str, Choice]) -> float:
    if choices["compile"] != "none":
        return _FLOORS["compiled"]
    if str(choices["activations"]).startswith("checkpoint"):
        return _FLOORS["checkpoint"]
    return _FLOORS["keep"]


def record_of(
    spec: TrialSpec, truth: Truth, factor: float, *, is_built: bool = True
) -> TrialRecord:
    """The record of a trial. ``factor`` is noise of its speed."""
    environment = {"gpu_memory_bytes": DEVICE_BYTES}
    begun = _START_SECONDS + truth.first_seconds + (0.0 if is_built else truth.build_seconds)
    outcome = Outcome.OK
    figures = {}
    if not truth.seconds:
        outcome, begun = Outcome.UNSUPPORTED, _UNSUPPORTED_SECONDS
    elif truth.memory_bytes > DEVICE_BYTES:
        outcome, begun = Outcome.OUT_OF_MEMORY, max(_OUT_OF_MEMORY_SECONDS, begun)
    else:
        seconds = truth.seconds / factor
        steps = spec.measure.warmup_steps + (spec.measure.steps or 1)
        begun += seconds * spec.accumulation * (steps - 1)
        figures = {
            "device_peak_bytes": truth.memory_bytes,
            "samples_per_second": spec.micro_batch / seconds,
            "host_bound_share": float(truth.is_host_bound),
        }
    return TrialRecord(
        spec=spec,
        outcome=outcome,
        rule="experts" if outcome is Outcome.UNSUPPORTED else "",
        measurements=figures,
        environment=environment,
        provenance=Provenance(slot_seconds=begun),
    )
