"""SIMULATED grids to replay searches against: memory and time by a law that is written here."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.record import TrialRecord
from jobs.spec import Choice, TrialSpec
from orchestrator.units import MIB
from tests.benchmarks.grids import Table, make_record, make_spec


@dataclass(frozen=True, slots=True)
class SimulatedTechnique:
    """How a simulated precision with its activations behaves."""

    base_mib: float
    sample_mib: float
    samples_per_second: float
    """Samples that the GPU computes per second, besides ``base_seconds`` per step."""
    host_seconds: float
    """The host takes at least this long for a step."""
    base_seconds: float = 0.008


TECHNIQUES: Mapping[tuple[str, str], SimulatedTechnique] = {
    ("fp32", "keep"): SimulatedTechnique(3931, 807.0, 44.5, 0.050),
    ("fp32", "checkpoint"): SimulatedTechnique(3932, 96.5, 33.8, 0.110),
    ("tf32", "keep"): SimulatedTechnique(3931, 807.0, 138.0, 0.050),
    ("tf32", "checkpoint"): SimulatedTechnique(3932, 96.5, 107.0, 0.110),
    ("bf16", "keep"): SimulatedTechnique(4484, 516.4, 350.0, 0.055),
    ("bf16", "checkpoint"): SimulatedTechnique(3932, 78.5, 261.0, 0.125),
    ("fp16", "keep"): SimulatedTechnique(4484, 516.4, 348.0, 0.058),
    ("fp16", "checkpoint"): SimulatedTechnique(3932, 78.5, 260.0, 0.130),
}
"""After one H200, BERT-large, 512 tokens: bytes and rates are measured, the shape between them is
the model's."""
OPTIMIZERS: Mapping[str, tuple[float, float]] = {
    "adamw_torch_fused": (0.0, 0.0),
    "adafactor": (-2556.0, 0.095),
    "adamw_bnb_8bit": (-1726.0, 0.030),
    "sgd": (-2559.0, -0.004),
}
"""Optimizer -> MiB, and seconds of a step, more than AdamW."""
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def simulated(
    *,
    techniques: Mapping[tuple[str, str], SimulatedTechnique] = TECHNIQUES,
    optimizers: Mapping[str, tuple[float, float]] = OPTIMIZERS,
    micro_batches: Sequence[int] = MICRO_BATCHES,
    device_mib: float = 143_771,
    host_variation: float = 1.0,
    seed: int = 0,
) -> Table:
    """SIMULATED: memory affine above what the optimizer needs, time affine above what the host
    needs.

    In each trial the host is 1 to ``host_variation`` times slower than it can be, which no row
    states.
    """
    generator = random.Random(seed)
    reference = next(iter(optimizers))
    records = []
    for (precision, activations), technique in techniques.items():
        for optimizer, extra in optimizers.items():
            for size in micro_batches:
                choices: dict[str, Choice] = {
                    "precision": precision,
                    "activations": activations,
                    "optimizer": optimizer,
                    "micro_batch": size,
                    "accumulation": 1,
                }
                recipe = {} if optimizer == reference else {"optimizer": optimizer}
                spec = make_spec(choices, recipe)
                host_seconds = technique.host_seconds * generator.uniform(1.0, host_variation)
                slowed = replace(technique, host_seconds=host_seconds)
                records.append(_simulated_record(spec, slowed, *extra, device_mib))
    return {record.trial_id: record for record in records}


def _simulated_record(
    spec: TrialSpec,
    technique: SimulatedTechnique,
    extra_mib: float,
    extra_seconds: float,
    device_mib: float,
) -> TrialRecord:
    size = spec.micro_batch
    tensors_mib = max(5184.0, technique.base_mib + technique.sample_mib * size)
    used_mib = tensors_mib + extra_mib + 1400
    gpu_seconds = technique.base_seconds + size / technique.samples_per_second
    seconds = max(technique.host_seconds, gpu_seconds) + extra_seconds
    fits = used_mib <= device_mib
    device_bytes = int(device_mib * MIB)
    return make_record(
        spec,
        round(used_mib * MIB) if fits else device_bytes,
        size / seconds if fits else None,
        device_bytes=device_bytes,
        slot_seconds=3.0 + 12 * seconds if fits else 3.5,
        host_bound_share=float(technique.host_seconds > gpu_seconds),
    )
