"""SIMULATED grids of unlike models, which guard a search against being fitted to recorded grids.

Each model is a `Sketch`: data that says what limits it, and what each technique does to it. Times
do not follow the law that the searches assume: the loader of data limits the vision transformer,
small batches fill the GPU badly, and every configuration is a little off. A draw varies all this.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.record import Outcome, Provenance, TrialRecord
from jobs.spec import Choice, TrialSpec
from orchestrator.units import GIB
from tests.benchmarks.grids import Table, make_record, make_spec
from tests.benchmarks.tuned.decoder import DEVICE_BYTES, record_of, truth_of
from tests.benchmarks.tuned.techniques import REFUSED, SimulatedEffect, drawn_factor

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
    sample_seconds: float
    """Of the GPU, where it is full."""
    half_full: float
    """The micro-batch at which the GPU computes half as many samples per second as it can."""
    host_seconds: float
    """The host takes at least this long for a step."""
    loading_seconds: float = 0.0
    """The host takes at least this long to load a sample."""
    start_seconds: float = 1.6
    """Of a trial before its first step."""
    absent: Sequence[Mapping[str, Choice]] = field(default=())
    """Combinations that the grid leaves out."""


def _compiled(first_seconds: float, time: float, saved: float) -> SimulatedEffect:
    return SimulatedEffect(time=time, saved=saved, host=0.5, first_seconds=first_seconds)


_VISION = Sketch(
    name="SIMULATED vision transformer, limited by loading",
    axes={
        "precision": ["bf16", "fp16"],
        "micro_batch": [8, 16, 32, 64, 128, 256, 512],
        "activations": ["keep", "checkpoint"],
        "compile": ["none", "inductor_regional"],
        "dataloader": ["main_process", "workers_4"],
    },
    techniques={
        "precision": {"fp16": SimulatedEffect(time=1.02, saved=1.03)},
        "activations": {"checkpoint": SimulatedEffect(time=1.28, saved=0.12, host=1.6)},
        "compile": {"inductor_regional": _compiled(7.0, 0.82, 0.8)},
        "dataloader": {"workers_4": SimulatedEffect(loading=0.3, first_seconds=1.0)},
    },
    empty_gib=2.6,
    sample_gib=0.155,
    sample_seconds=1 / 2300,
    half_full=6.0,
    host_seconds=0.031,
    loading_seconds=1 / 1500,
)
_EXPERTS = Sketch(
    name="SIMULATED mixture of experts, compiling fails",
    axes={
        "micro_batch": [1, 2, 4, 8, 16],
        "activations": ["keep", "checkpoint"],
        "experts": ["auto", "batched_mm", "grouped_mm"],
        "compile": ["none", "inductor_regional"],
        "loss": ["plain", "chunked", "cce"],
    },
    techniques={
        "activations": {"checkpoint": SimulatedEffect(time=1.35, saved=0.25, host=1.5)},
        "experts": {
            "batched_mm": SimulatedEffect(time=1.5, saved=5.0, host=0.35),
            "grouped_mm": SimulatedEffect(time=0.72, saved=0.95, host=0.4),
        },
        "compile": {
            "inductor_regional": SimulatedEffect(outcome=Outcome.FAILED, failing_seconds=14.0),
        },
        "loss": {"chunked": SimulatedEffect(time=1.01, saved=0.8, fixed_gib=-0.3), "cce": REFUSED},
    },
    empty_gib=11.5,
    sample_gib=2.1,
    sample_seconds=1 / 42,
    half_full=0.8,
    host_seconds=0.33,
    absent=({"compile": "inductor_regional", "loss": "cce"},),
)
_LORA = Sketch(
    name="SIMULATED LoRA of a 3 B decoder, on 16-bit and 4-bit weights",
    axes={
        "micro_batch": [1, 2, 4, 8],
        "activations": ["keep", "budget_0.5", "checkpoint"],
        "compile": ["none", "inductor_regional"],
        "loss": ["plain", "chunked", "liger"],
        "kernels": ["none", "liger"],
        "base": ["16bit", "bnb_4bit"],
    },
    techniques={
        "activations": {
            "checkpoint": SimulatedEffect(time=1.36, saved=0.1),
            "budget_0.5": SimulatedEffect(time=1.07, saved=0.55),
        },
        "compile": {"inductor_regional": _compiled(16.0, 0.78, 0.8)},
        "loss": {
            "chunked": SimulatedEffect(saved=0.82),
            "liger": SimulatedEffect(time=1.03, saved=0.8, first_seconds=2.0),
        },
        "kernels": {"liger": SimulatedEffect(time=0.88, saved=0.75, first_seconds=4.0)},
        "base": {"bnb_4bit": SimulatedEffect(time=1.3, fixed_gib=-4.2, recipe=True)},
    },
    empty_gib=7.6,
    sample_gib=14.5,
    sample_seconds=1 / 5.2,
    half_full=0.15,
    host_seconds=0.12,
    start_seconds=3.0,
    absent=(
        {"activations": "budget_0.5", "compile": "none"},
        {"kernels": "liger", "compile": "inductor_regional"},
        {"kernels": "liger", "loss": "chunked"},
        {"kernels": "none", "loss": "liger"},
    ),
)
SKETCHES = (_VISION, _EXPERTS, _LORA)


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
    gpu = sketch.sample_seconds * (size + sketch.half_full)
    host = sketch.host_seconds
    loading = sketch.loading_seconds * size
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
