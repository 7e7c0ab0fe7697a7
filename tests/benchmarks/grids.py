"""Grids to replay searches against: measured tables, a simulated one, and either with noise.

A table is every trial of a plan with what came of it, in the order of the plan.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, DataSpec, ModelSpec, Recipe, SyntheticData, TrialSpec
from jobs.steady_state import are_enough, mean_step_error, onset
from jobs.techniques import AXES

DATA = Path(__file__).parents[1] / "data"
RECORDED = DATA / "bert_large_h200_fp32_tf32.parquet"
"""Measured on H200s: fp32 and tf32, 144 configurations of BERT-large, none left out."""
PREDICTED = DATA / "predicted_bert_large_h200.parquet"
"""Of configs/bert_large.yaml, all 288 configurations."""
RUN = Path(__file__).parents[2] / "docs" / "results" / "2026-11-21-bert_large-h200"
"""The run of all 288 configurations, with every step."""
FIGURES = (
    "device_peak_bytes",
    "samples_per_second",
    "samples_per_second_ci95",
    "host_bound_share",
    "launch_bound_forward_share",
    "launch_bound_update_share",
)
MIB, GIB = 2**20, 2**30

Table = Mapping[str, TrialRecord]
"""Trial id -> what came of it, in the order of the plan."""


def make_spec(choices: Mapping[str, Choice], equivalence: str) -> TrialSpec:
    """A trial that only ever runs in a replay."""
    return TrialSpec(
        choices=dict(choices),
        model=ModelSpec(task="sequence-classification", architecture="bert"),
        data=DataSpec(synthetic=SyntheticData()),
        recipe=Recipe(
            training_arguments={
                "per_device_train_batch_size": choices.get("micro_batch", 8),
                "gradient_accumulation_steps": choices.get("accumulation", 1),
            }
        ),
        equivalence=equivalence,
    )


def make_record(
    spec: TrialSpec,
    memory: float | None,
    speed: float | None,
    device: int,
    seconds: float,
    host_bound_share: float | None = None,
) -> TrialRecord:
    """What came of a trial; out of memory where it has no speed."""
    figures = {
        "device_peak_bytes": memory,
        "samples_per_second": speed,
        "host_bound_share": host_bound_share,
    }
    return TrialRecord(
        spec=spec,
        outcome=Outcome.OUT_OF_MEMORY if speed is None else Outcome.OK,
        measurements={name: value for name, value in figures.items() if value is not None},
        environment={"gpu_memory_bytes": device},
        slot_seconds=seconds,
    )


@cache
def recorded(path: Path = RECORDED) -> Table:
    """A measured table: any run's ``trials.parquet``. What was skipped is not in it, for nothing is known of it."""
    table = pq.read_table(path)
    axes = [
        name
        for name in table.column_names
        if name in AXES or name in ("micro_batch", "accumulation")
    ]
    environments = json.loads((table.schema.metadata or {}).get(b"environments", b"{}"))
    records = []
    for row in table.to_pylist():
        if row["outcome"] == Outcome.SKIPPED:
            continue
        environment = environments.get(row.get("environment_id"), row)
        spec = make_spec({axis: row[axis] for axis in axes}, row["equivalence"])
        figures = {name: row[name] for name in FIGURES if row.get(name) is not None}
        records.append(
            TrialRecord(
                spec=spec,
                outcome=Outcome(row["outcome"]),
                measurements=figures if row["outcome"] == Outcome.OK else {},
                environment={"gpu_memory_bytes": environment["gpu_memory_bytes"]},
                slot_seconds=row["slot_seconds"],
            )
        )
    return {record.trial_id: record for record in records}


def predicted(table: Table, path: Path = PREDICTED) -> Mapping[str, float]:
    """Trial id -> the bytes of device memory that were predicted of its choices without a GPU; what
    ``python -m orchestrator.predict CONFIG --output FILE`` wrote."""
    rows = pq.read_table(path, columns=["choices", "device_bytes"]).to_pylist()
    foretold = {
        _chosen(json.loads(row["choices"])): row["device_bytes"]
        for row in rows
        if row["device_bytes"]
    }
    known = (
        (trial_id, foretold.get(_chosen(record.spec.choices))) for trial_id, record in table.items()
    )
    return {trial_id: float(nbytes) for trial_id, nbytes in known if nbytes}


def _chosen(choices: Mapping[str, Choice]) -> tuple[Choice | None, ...]:
    return tuple(
        choices.get(axis)
        for axis in ("precision", "activations", "optimizer", "micro_batch", "accumulation")
    )


@cache
def measured_anew(run: Path = RUN) -> Table:
    """A run's table as today's stopping rule would have measured it: of its recorded steps those that the rule would
    have run, their speed and its interval, and the trial's seconds less those of the steps left out."""
    metadata = pq.read_schema(run / "trials.parquet").metadata
    measure = json.loads(metadata[b"config"])["measure"]
    ids = [
        row["trial_id"]
        for row in pq.read_table(run / "trials.parquet", columns=["trial_id"]).to_pylist()
    ]
    steps: dict[str, list[float]] = {trial_id: [] for trial_id in ids}
    for row in pq.read_table(run / "steps.parquet").to_pylist():
        steps[row["trial_id"]].append(row["device_seconds"])
    pairs = zip(ids, recorded(run / "trials.parquet").items(), strict=True)
    return {ours: _anew(record, steps[trial_id], measure) for trial_id, (ours, record) in pairs}


def _anew(record: TrialRecord, seconds: Sequence[float], measure: Mapping[str, Any]) -> TrialRecord:
    if record.outcome is not Outcome.OK:
        return record
    warmup, total, error = measure["warmup_steps"], measure["steps"], measure["relative_error"]
    dry = record.measurements.get("host_bound_share", 0.0)
    run = seconds[: steps_run(seconds, warmup, warmup + total, error, dry)]
    counted = run[warmup + onset(run[warmup:], error) :]
    figures = dict(record.measurements)
    figures["samples_per_second"] = record.spec.effective_batch / statistics.fmean(counted)
    figures["samples_per_second_ci95"] = mean_step_error(counted)
    return replace(
        record, measurements=figures, slot_seconds=record.slot_seconds - sum(seconds[len(run) :])
    )


def on_one_host(table: Table, ratio: float = 0.975, noise: float = 0.01, seed: int = 0) -> Table:
    """SIMULATED in part: a run's table whose fp16 trials went as its bf16 ones, at such a ratio of their speeds. In the
    recorded one they are another, slower host's; where a host measured both the ratio was 0.97 to 0.98."""
    generator = random.Random(seed)
    ran = {_chosen(record.spec.choices): record for record in table.values()}
    alike = {}
    for trial_id, record in table.items():
        choices = record.spec.choices
        if choices["precision"] == "fp16" and record.outcome is Outcome.OK:
            model = ran[_chosen({**choices, "precision": "bf16"})]
            figures = dict(model.measurements)
            figures["samples_per_second"] *= generator.gauss(ratio, noise)
            record = replace(record, measurements=figures, slot_seconds=model.slot_seconds)
        alike[trial_id] = record
    return alike


def steps_run(
    seconds: Sequence[float], warmup: int, total: int, error: float, host_bound_share: float
) -> int:
    """How many of a trial's steps are run, warm-up included, as ``jobs.trackers.steps`` decides step by step; the share
    is that of all of them."""
    for run in range(warmup + 1, min(total, len(seconds))):
        if are_enough(seconds[warmup:run], error, total - warmup, host_bound_share):
            return run
    return min(total, len(seconds))


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How a simulated precision and activations behave: MiB and seconds, with a part per sample."""

    base_mib: float
    sample_mib: float
    base_seconds: float
    samples_per_second: float
    host_seconds: float


# After one H200: BERT-large, 512 tokens. Bytes and rates are measured ones, the shape between them is the model's.
WAYS: Mapping[tuple[str, str], Way] = {
    (precision, activations): Way(
        base_mib=base,
        sample_mib=sample,
        base_seconds=0.008,
        samples_per_second=rate,
        host_seconds=host,
    )
    for precision, activations, base, sample, rate, host in (
        ("fp32", "keep", 3931, 807.0, 44.5, 0.050),
        ("fp32", "checkpoint", 3932, 96.5, 33.8, 0.110),
        ("tf32", "keep", 3931, 807.0, 138.0, 0.050),
        ("tf32", "checkpoint", 3932, 96.5, 107.0, 0.110),
        ("bf16", "keep", 4484, 516.4, 350.0, 0.055),
        ("bf16", "checkpoint", 3932, 78.5, 261.0, 0.125),
        ("fp16", "keep", 4484, 516.4, 348.0, 0.058),
        ("fp16", "checkpoint", 3932, 78.5, 260.0, 0.130),
    )
}
OPTIMIZERS: Mapping[str, tuple[float, float]] = {
    "adamw_torch_fused": (0.0, 0.0),
    "adafactor": (-2556.0, 0.095),
    "adamw_bnb_8bit": (-1726.0, 0.030),
    "sgd": (-2559.0, -0.004),
}
"""Optimizer -> MiB and seconds a step more than AdamW."""
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def simulated(
    *,
    ways: Mapping[tuple[str, str], Way] = WAYS,
    optimizers: Mapping[str, tuple[float, float]] = OPTIMIZERS,
    micro_batches: Sequence[int] = MICRO_BATCHES,
    device_mib: float = 143_771,
    restlessness: float = 1.0,
    seed: int = 0,
) -> Table:
    """SIMULATED, not measured: memory affine above what the optimizer needs, time affine above the host's floor.

    A host is up to ``restlessness`` times slower than it can be, which it does not own up to and no two trials share.
    """
    records, generator = [], random.Random(seed)
    for precision, activations in ways:
        for optimizer in optimizers:
            for size in micro_batches:
                choices = {
                    "precision": precision,
                    "activations": activations,
                    "optimizer": optimizer,
                }
                kind = "" if optimizer == next(iter(optimizers)) else f" · optimizer={optimizer}"
                spec = make_spec(
                    {**choices, "micro_batch": size, "accumulation": 1},
                    f"effective_batch={size}{kind}",
                )
                way = ways[precision, activations]
                way = replace(
                    way, host_seconds=way.host_seconds * generator.uniform(1.0, restlessness)
                )
                figures = _simulate(way, *optimizers[optimizer], size, device_mib)
                dry = float(way.host_seconds > way.base_seconds + size / way.samples_per_second)
                records.append(make_record(spec, *figures, host_bound_share=dry))
    return {record.trial_id: record for record in records}


def _simulate(
    way: Way, more_mib: float, more_seconds: float, size: int, device_mib: float
) -> tuple[float, float | None, int, float]:
    used = max(5184.0, way.base_mib + way.sample_mib * size) + more_mib + 1400
    seconds = max(way.host_seconds, way.base_seconds + size / way.samples_per_second) + more_seconds
    device = int(device_mib * MIB)
    if used > device_mib:
        return device, None, device, 3.5
    return round(used * MIB), size / seconds, device, 3.0 + 12 * seconds


def with_noise(table: Table, noise: float, seed: int) -> Table:
    """The table with every speed multiplied by a normal deviate of 1 ± ``noise``, which no row owns up to."""
    generator = random.Random(seed)
    noisy = {}
    for trial_id, record in table.items():
        factor = max(0.2, generator.gauss(1.0, noise))
        figures = dict(record.measurements)
        if "samples_per_second" in figures:
            figures["samples_per_second"] *= factor
        noisy[trial_id] = replace(record, measurements=figures)
    return noisy
