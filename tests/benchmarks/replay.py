"""Searches replayed against a measured or simulated grid: what they cost and what of the frontier they recall.

    python -m tests.benchmarks.replay [--seeds 20]

A replay is a search that is told, for every trial it asks for, what the table says of it. Its figures are exact and
repeatable; no GPU is needed.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, DataSpec, ModelSpec, Recipe, SyntheticData, TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.configurations import kind_of_training
from orchestrator.search.frontier import Frontier
from orchestrator.search.grid import Grid

RECORDED = Path(__file__).parents[1] / "data" / "bert_large_h200_fp32_tf32.parquet"
TOLERANCE = 0.02
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


def make_record(spec: TrialSpec, memory: float | None, speed: float | None, device: int, seconds: float) -> TrialRecord:
    """What came of a trial; out of memory where it has no speed."""
    figures = {"device_used_bytes": memory, "samples_per_second": speed}
    return TrialRecord(
        spec=spec,
        outcome=Outcome.OUT_OF_MEMORY if speed is None else Outcome.OK,
        measurements={name: value for name, value in figures.items() if value is not None},
        environment={"gpu_memory_bytes": device},
        wall_seconds=seconds,
    )


@cache
def recorded(path: Path = RECORDED) -> Table:
    """The table measured on H200s: fp32 and tf32, 144 configurations of BERT-large, none left out."""
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    records = []
    for row in rows:
        axes = ("precision", "micro_batch", "accumulation", "activations", "optimizer")
        spec = make_spec({axis: row[axis] for axis in axes}, row["equivalence"])
        speed = row["samples_per_second"] if row["outcome"] == "ok" else None
        figures = (row["device_used_bytes"], speed, row["gpu_memory_bytes"], row["wall_seconds"])
        record = make_record(spec, *figures)
        error = {"samples_per_second_error": row["samples_per_second_error"]}
        records.append(replace(record, measurements={**record.measurements, **error}))
    return {record.trial_id: record for record in records}


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
        base_mib=base, sample_mib=sample, base_seconds=0.008, samples_per_second=rate, host_seconds=host
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
) -> Table:
    """SIMULATED, not measured: memory affine above what the optimizer needs, time affine above the host's floor."""
    records = []
    for precision, activations in ways:
        for optimizer in optimizers:
            for size in micro_batches:
                choices = {"precision": precision, "activations": activations, "optimizer": optimizer}
                kind = "" if optimizer == next(iter(optimizers)) else f" · optimizer={optimizer}"
                spec = make_spec({**choices, "micro_batch": size, "accumulation": 1}, f"effective_batch={size}{kind}")
                figures = _simulate(ways[precision, activations], *optimizers[optimizer], size, device_mib)
                records.append(make_record(spec, *figures))
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What a search cost against a table, and what it found."""

    asked: tuple[str, ...]
    seconds: float
    """Slot seconds of the trials that were run."""
    of_seconds: float
    """Slot seconds of all trials."""
    recall: float
    """Share of the exhaustive frontiers' points that a measured point is within the tolerance of."""
    audit_error: float
    """The largest error of an audited prediction of memory or speed, relative; 0 without audits."""

    @property
    def trials(self) -> int:
        """Trials that were run."""
        return len(self.asked)

    @property
    def cost(self) -> float:
        """Share of the exhaustive slot seconds."""
        return self.seconds / self.of_seconds


MakeSearch = Callable[[Iterable[TrialSpec]], Search]


def replay(make: MakeSearch, table: Table, *, at_once: int = 1, trials: int | None = None) -> Replay:
    """Run a search against a table, cut after ``trials``; several trials may be out at once."""
    search = make([record.spec for record in table.values()])
    asked: list[str] = []
    out: list[str] = []
    while trials is None or len(asked) < trials:
        while len(out) < at_once and (spec := search.ask()) is not None:
            out.append(spec.trial_id)
            asked.append(out[-1])
        if not out:
            break
        search.tell(table[out.pop(0)])
    audits = search.audit if isinstance(search, Frontier) else ()
    errors = [error for audit in audits for error in (audit.memory_error, audit.speed_error) if error is not None]
    return Replay(
        asked=tuple(asked),
        seconds=sum(table[trial_id].wall_seconds for trial_id in asked),
        of_seconds=sum(record.wall_seconds for record in table.values()),
        recall=recall(table, asked),
        audit_error=max(map(abs, errors), default=0.0),
    )


def recall(table: Table, asked: Iterable[str], tolerance: float = TOLERANCE) -> float:
    """Share of the frontier points that an asked point of the same kind of training is as good as, within this."""
    points = front(table)
    run = [record for trial_id in asked if (record := table[trial_id]).outcome is Outcome.OK]
    found = sum(any(_as_good(one, point, tolerance) for one in run) for point in points)
    return found / len(points) if points else 1.0


def front(table: Table) -> list[TrialRecord]:
    """The points of the table that no other of their kind of training beats."""
    ok = [record for record in table.values() if record.outcome is Outcome.OK]
    return [point for point in ok if not any(_beats(other, point) for other in ok)]


def _figures(record: TrialRecord) -> tuple[float, float]:
    return record.measurements["device_used_bytes"], record.measurements["samples_per_second"]


def _alike(one: TrialRecord, other: TrialRecord) -> bool:
    return kind_of_training(one.spec.equivalence) == kind_of_training(other.spec.equivalence)


def _beats(one: TrialRecord, other: TrialRecord) -> bool:
    (memory, speed), (other_memory, other_speed) = _figures(one), _figures(other)
    no_worse = memory <= other_memory and speed >= other_speed
    return no_worse and (memory, speed) != (other_memory, other_speed) and _alike(one, other)


def _as_good(one: TrialRecord, point: TrialRecord, tolerance: float) -> bool:
    (memory, speed), (point_memory, point_speed) = _figures(one), _figures(point)
    close = memory <= (1 + tolerance) * point_memory and speed >= (1 - tolerance) * point_speed
    return close and _alike(one, point)


def random_order(seed: int) -> MakeSearch:
    """Every trial once, in random order."""

    def make(trials: Iterable[TrialSpec]) -> Search:
        shuffled = list(trials)
        random.Random(seed).shuffle(shuffled)
        return Grid(shuffled)

    return make


def _line(name: str, runs: Sequence[Replay], of: int) -> str:
    recalls = [run.recall for run in runs]
    return (
        f"  {name:28} {statistics.mean(run.trials for run in runs):6.1f} of {of:3}"
        f"  {statistics.mean(run.cost for run in runs):6.1%} {max(run.cost for run in runs):6.1%}"
        f"  {statistics.mean(recalls):6.1%} {min(recalls):6.1%}  {max(run.audit_error for run in runs):6.1%}"
    )


def report(name: str, table: Table, seeds: int) -> Iterable[str]:
    """Lines: the searches on one table, without and with noise."""
    yield f"{name}: {len(front(table))} points on the frontiers of {len(table)}"
    yield f"  {'':28} {'trials':>13}  {'cost':>6} {'worst':>6}  {'recall':>6} {'worst':>6}  {'audit':>6}"
    yield _line("grid", [replay(Grid, table)], len(table))
    once = replay(Frontier, table)
    yield _line("frontier", [once], len(table))
    yield _line("frontier, 8 at once", [replay(Frontier, table, at_once=8)], len(table))
    for share in (0.25, 0.5, 0.75):
        cut = int(share * once.trials)
        yield _line(f"frontier, cut at {cut} trials", [replay(Frontier, table, trials=cut)], len(table))
    shuffled = [replay(random_order(seed), table, trials=once.trials) for seed in range(seeds)]
    yield _line("random, as many trials", shuffled, len(table))
    for noise in (0.01, 0.03, 0.10):
        noisy = [with_noise(table, noise, seed) for seed in range(seeds)]
        yield _line(f"frontier, {noise:.0%} noise", [replay(Frontier, one) for one in noisy], len(table))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.replay", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="random orders and noisy tables for each figure")
    seeds = parser.parse_args().seeds
    for name, table in (("measured on H200, fp32 and tf32", recorded()), ("SIMULATED, four precisions", simulated())):
        print("\n".join(report(name, table, seeds)))


if __name__ == "__main__":
    main()
