"""SIMULATED grids of unlike models, which guard a search against being fitted to recorded grids.

Each model is a `Sketch`: data that says what limits it, and what each technique does to it. Times
do not follow the law that the searches assume: the loader of data limits the vision transformer,
small batches fill the GPU badly, and every configuration is a little off. A draw varies all this.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from jobs.record import Outcome, Provenance, TrialRecord
from jobs.spec import Choice, TrialSpec
from orchestrator.units import GIB
from tests.benchmarks.grids import Table, make_record, make_spec
from tests.benchmarks.tuned.decoder import DEVICE_BYTES, record_of, truth_of
from tests.benchmarks.tuned.techniques import SIMULATED, SimulatedEffect, drawn_factor

EFFECT_DEVIATION = 0.05
"""Each factor of a technique is drawn around its value with this deviation, as a logarithm."""
PAIR_DEVIATION = 0.02
"""And what two techniques do together beyond their product."""
OFF_DEVIATION = 0.008
"""And how far each configuration is off the smooth curve, as kernels of other shapes are."""
_STEPS = 8


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sketch:
    """A model on one GPU: its own figures, and those of the techniques in its grid."""

    name: str
    axes: Mapping[str, Sequence[Choice]]
    """The first value of each axis is its baseline."""
    techniques: Mapping[str, Mapping[str, SimulatedEffect]]
    empty_gib: float
    """Memory without samples: weights, gradients, optimizer states, context."""
    sample_gib: float
    samples_per_second: float
    """Of the GPU, where it is full."""
    half_full: float
    """The micro-batch at which the GPU computes half as many samples per second as it can."""
    host_seconds: float
    """The host takes at least this long for a step."""
    loaded_per_second: float = math.inf
    """The host loads at most so many samples in a second."""
    start_seconds: float = 1.6
    """Of a trial before its first step."""
    absent: Sequence[Mapping[str, Choice]] = field(default=())
    """Combinations that the grid leaves out."""


SKETCHES = TypeAdapter(tuple[Sketch, ...]).validate_python(SIMULATED["sketches"])


def drawn(sketch: Sketch, seed: int) -> Table:
    """One draw of a sketch's grid. The same seed is the same grid."""
    records = [_record(sketch, choices, seed) for choices in _combinations(sketch)]
    return {record.trial_id: record for record in records}


def _combinations(sketch: Sketch) -> Iterator[dict[str, Choice]]:
    for values in itertools.product(*sketch.axes.values()):
        choices = dict(zip(sketch.axes, values, strict=True))
        if not any(own.items() <= choices.items() for own in sketch.absent):
            yield choices


def _record(sketch: Sketch, choices: Mapping[str, Choice], seed: int) -> TrialRecord:
    """The record of a configuration, without noise."""
    chosen = {}
    for axis, value in choices.items():
        listed = sketch.techniques.get(axis, {})
        if str(value) in listed:
            chosen[axis, str(value)] = listed[str(value)]
    spec = make_spec(choices, {axis: name for (axis, name), own in chosen.items() if own.recipe})
    first = sum(own.first_seconds for own in chosen.values())
    for (_, name), technique in chosen.items():
        if technique.outcome is not Outcome.OK:
            return _failed(spec, technique, name)
    memory = _memory(sketch, chosen, spec.micro_batch)
    if memory > DEVICE_BYTES:
        seconds = sketch.start_seconds + first + 0.5
        return make_record(spec, None, None, device_bytes=DEVICE_BYTES, slot_seconds=seconds)
    gpu, host = _seconds(sketch, chosen, spec.micro_batch, seed)
    gpu *= drawn_factor(seed, OFF_DEVIATION, sketch.name, *map(str, choices.values()))
    step = max(gpu, host)
    return make_record(
        spec,
        memory,
        spec.micro_batch / step,
        device_bytes=DEVICE_BYTES,
        slot_seconds=sketch.start_seconds + first + _STEPS * step,
        host_bound_share=float(host > gpu),
    )


def _failed(spec: TrialSpec, technique: SimulatedEffect, name: str) -> TrialRecord:
    return TrialRecord(
        spec=spec,
        outcome=technique.outcome,
        rule=f"package:{name}" if technique.outcome is Outcome.UNSUPPORTED else "",
        environment={"gpu_memory_bytes": DEVICE_BYTES},
        provenance=Provenance(slot_seconds=technique.failing_seconds),
    )


def _memory(sketch: Sketch, chosen: Mapping[tuple[str, str], SimulatedEffect], size: int) -> float:
    sample_gib = sketch.sample_gib * math.prod(own.saved for own in chosen.values())
    empty_gib = sketch.empty_gib + sum(own.fixed_gib for own in chosen.values())
    return (empty_gib + sample_gib * size) * GIB


def _seconds(
    sketch: Sketch, chosen: Mapping[tuple[str, str], SimulatedEffect], size: int, seed: int
) -> tuple[float, float]:
    """Seconds of a step: of the GPU, and of the host with its loader."""
    gpu = 1 / sketch.samples_per_second * (size + sketch.half_full)
    host = sketch.host_seconds
    loading = 1 / sketch.loaded_per_second * size
    names = sorted(chosen)
    for axis, name in names:
        technique = chosen[axis, name]
        gpu *= technique.time * drawn_factor(seed, EFFECT_DEVIATION, sketch.name, axis, name)
        host *= technique.host
        loading *= technique.loading
    for first, second in itertools.combinations(names, 2):
        gpu *= drawn_factor(seed, PAIR_DEVIATION, sketch.name, *first, *second)
    return gpu, max(host, loading)


def decoder_grid(seed: int) -> Table:
    """A draw of `tuned`'s decoder in an expert's grid: compiled regions, budgets, fused losses."""
    records = []
    for choices in _decoder_choices():
        spec = make_spec(choices)
        whole = {"attention": "auto", "allocator": "default", **choices}
        record = record_of(spec, truth_of(whole, seed), 1.0)
        # The default of a plan: one warm-up step, and several that count.
        step = spec.micro_batch / record.measurements.get("samples_per_second", math.inf)
        seconds = record.slot_seconds + _STEPS * step
        records.append(replace(record, provenance=Provenance(slot_seconds=seconds)))
    return {record.trial_id: record for record in records}


def _decoder_choices() -> Iterator[dict[str, Choice]]:
    eager = (["keep", "checkpoint"], ["none"], ["plain", "chunked"], ["none"])
    liger = (["keep", "checkpoint"], ["none"], ["liger"], ["liger"])
    budgets = ["keep", "budget_0.5", "budget_0.2", "budget_0.05"]
    compiled = (budgets, ["inductor_regional"], ["plain", "chunked"], ["none"])
    for subset in (eager, liger, compiled):
        for size in (2, 4, 8, 16, 24, 32):
            for activations, compile_, loss, kernels in itertools.product(*subset):
                yield {
                    "precision": "bf16",
                    "micro_batch": size,
                    "activations": activations,
                    "compile": compile_,
                    "loss": loss,
                    "kernels": kernels,
                }
