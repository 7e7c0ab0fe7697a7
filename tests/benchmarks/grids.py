"""Recorded grids to replay searches against, as they are or with noise.

A table is every trial of a plan with its record, in the order of the plan.
"""

import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from jobs.record import Outcome, Provenance, TrialRecord
from jobs.spec import (
    Choice,
    DataSpec,
    LibrarySettings,
    ModelSpec,
    SyntheticData,
    TrainingRecipe,
    TrialSpec,
)
from jobs.steady_state import launch_bound_share
from jobs.techniques import AXES

DATA = Path(__file__).parents[1] / "data"
RECORDED = DATA / "bert_large_h200_fp32_tf32.parquet"
"""Measured on H200s: fp32 and tf32, all 144 configurations of BERT-large."""
PREDICTED = DATA / "predicted_bert_large_h200.parquet"
"""Predicted memory of configs/bert_large.yaml, all 288 configurations."""
RUN = Path(__file__).parents[2] / "docs" / "results" / "2026-11-21-bert_large-h200"
"""The run that measured all 288 configurations, with every step."""
FIGURES = (
    "device_peak_bytes",
    "samples_per_second",
    "samples_per_second_ci95",
    "host_bound_share",
    "launch_bound_forward_share",
    "launch_bound_update_share",
    "data_seconds_median",
    "step_seconds_median",
)
MAX_GPU_WAIT = 0.05
"""A speed is the GPU's own if the GPU waited at most this share of the time or of the
micro-batches."""

Table = Mapping[str, TrialRecord]
"""Trial id -> its record, in the order of the plan."""
Row = Mapping[str, Any]


def make_spec(
    choices: Mapping[str, Choice], recipe: Mapping[str, Choice] | None = None
) -> TrialSpec:
    """A trial that runs only in a replay."""
    return TrialSpec(
        choices=dict(choices),
        model=ModelSpec(task="sequence-classification", architecture="bert"),
        data=DataSpec(synthetic=SyntheticData()),
        settings=LibrarySettings(
            training_arguments={
                "per_device_train_batch_size": choices.get("micro_batch", 8),
                "gradient_accumulation_steps": choices.get("accumulation", 1),
            },
            # A trial's identity follows from its settings, not from its choices.
            model_kwargs={f"choice_{axis}": value for axis, value in choices.items()},
        ),
        training_recipe=TrainingRecipe.of(recipe or {}),
    )


def grid_of(**axes: Sequence[Choice]) -> list[TrialSpec]:
    """All combinations of the axes' values, the last axis fastest; of 8 samples by default."""
    batch: dict[str, Choice] = {"micro_batch": 8, "accumulation": 1}
    grid = itertools.product(*axes.values())
    return [make_spec({**batch, **dict(zip(axes, values, strict=True))}) for values in grid]


def make_record(
    spec: TrialSpec,
    memory: float | None,
    speed: float | None,
    *,
    device_bytes: int = 0,
    slot_seconds: float = 1.0,
    **further: float,
) -> TrialRecord:
    """A trial's record: memory in bytes, samples per second. Out of memory if it has no speed.

    ``further`` are further figures, by the names of their columns.
    """
    figures = {"device_peak_bytes": memory, "samples_per_second": speed, **further}
    return TrialRecord(
        spec=spec,
        outcome=Outcome.OUT_OF_MEMORY if speed is None else Outcome.OK,
        measurements={name: value for name, value in figures.items() if value is not None},
        environment={"gpu_memory_bytes": device_bytes},
        provenance=Provenance(slot_seconds=slot_seconds),
    )


@cache
def recorded(path: Path = RECORDED) -> Table:
    """A measured table: a grid of ``DATA``, or any run's ``trials.parquet``.

    Skipped trials are left out, because nothing is known about them.
    """
    table = pq.read_table(path)
    metadata = table.schema.metadata or {}
    environments = json.loads(metadata.get(b"environments", b"{}"))
    axes = [name for name in table.column_names if name in AXES]
    rows = table.to_pylist()
    records = []
    for row in rows:
        if row["outcome"] != Outcome.SKIPPED:
            environment = environments.get(row.get("environment_id"), row)
            records.append(_record_of(row, axes, environment["gpu_memory_bytes"]))
    return {record.trial_id: record for record in records}


def _record_of(row: Row, axes: Iterable[str], device_bytes: int) -> TrialRecord:
    choices = {axis: row[axis] for axis in axes}
    figures = {name: row[name] for name in FIGURES if row.get(name) is not None}
    return TrialRecord(
        spec=make_spec(choices, json.loads(row["training_recipe"])),
        outcome=Outcome(row["outcome"]),
        measurements=figures if row["outcome"] == Outcome.OK else {},
        environment={"gpu_memory_bytes": device_bytes},
        provenance=Provenance(slot_seconds=row["slot_seconds"]),
    )


def is_gpus_own(row: Row) -> bool:
    """Whether a row's speed is the GPU's own. Tables from before a column was measured count as if
    it were 0."""
    host_bound_share = row.get("host_bound_share") or 0.0
    return max(host_bound_share, launch_bound_share(row)) <= MAX_GPU_WAIT


def predicted(table: Table, path: Path = PREDICTED) -> Mapping[str, float]:
    """Trial -> bytes of device memory, as predicted without a GPU for its choices.

    ``path`` is what ``python -m orchestrator.predict CONFIG --output FILE`` wrote.
    """
    bytes_of = {}
    for row in pq.read_table(path).to_pylist():
        # A table of unknown predictions alone has no such column.
        if row.get("device_bytes"):
            bytes_of[_key(json.loads(row["choices"]))] = float(row["device_bytes"])
    keys = {trial_id: _key(record.spec.choices) for trial_id, record in table.items()}
    return {trial_id: bytes_of[key] for trial_id, key in keys.items() if key in bytes_of}


def _key(choices: Mapping[str, Choice]) -> frozenset[tuple[str, str]]:
    """The choices that are no default, so that a table with fewer axes has the same keys."""
    pairs = []
    for axis, value in choices.items():
        default = AXES[axis].default if axis in AXES else None
        if value != default:
            pairs.append((axis, str(value)))
    return frozenset(pairs)


def with_noise(table: Table, noise: float, seed: int) -> Table:
    """The table with every speed times a normal deviate of 1 ± ``noise``, which no row states."""
    generator = random.Random(seed)
    noisy = {}
    for trial_id, record in table.items():
        factor = max(0.2, generator.gauss(1.0, noise))
        figures = dict(record.measurements)
        if "samples_per_second" in figures:
            figures["samples_per_second"] *= factor
        noisy[trial_id] = replace(record, measurements=figures)
    return noisy
