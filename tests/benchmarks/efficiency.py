"""What a sweep makes of several GPUs of one host: the same trials on one and on more, and where the rest went.

    python -m tests.benchmarks.efficiency [--gpus 1 2] [--trials 24] [--output DIR] [--recorded FILE.json]

Every sweep is a command of its own, in sight of the first so many GPUs; its trials have the same cores each time.
Efficiency is the span of one GPU's trials, first start to last end, over that of n times n. What is lacking is time
of a slot before its first trial, between its trials and after its last, and trials that were slower beside others: in
which of their phases, a second table says. ``--recorded`` prints both again from what was written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from jobs.node import environment, nvml
from orchestrator.storage.tables import parquet

ROOT = Path(__file__).parents[2]
TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """One sweep on so many GPUs; seconds. Those of the slots are sums over them."""

    gpus: int
    trials: int
    command_seconds: float
    start_seconds: float
    """From the command to the first trial's start."""
    span_seconds: float
    """From there to the last trial's end."""
    trial_seconds: float
    before_seconds: float
    between_seconds: float
    after_seconds: float
    phase_seconds: dict[str, float]
    """Phase -> its mean over the trials; what is none of the others (reading back, the process's end) is the rest."""


def write_config(path: Path, trials: int, cpus: int, *, tiny: bool) -> None:
    """So many repeats of a GPU-bound trial that takes seconds."""
    document = yaml.safe_load((ROOT / "configs" / "bert_large.yaml").read_text())
    if tiny:
        document["model"]["config"] = TINY
        document["data"] = {"synthetic": {"sequence_length": 32}}
    document["axes"] = {"precision": ["bf16"], "micro_batch": [64]}
    document["measure"] = {"warmup_steps": 1, "steps": 6, "repeats": trials, "anatomy": "none"}
    document["resources"] = {"cpus_per_trial": cpus}
    del document["budgets"]
    path.write_text(yaml.safe_dump(document))


def run(config: Path, devices: Sequence[str], folder: Path) -> Sweep:
    """A sweep in sight of these GPUs. Raises CalledProcessError."""
    command = [
        sys.executable,
        "-m",
        "orchestrator.sweep",
        str(config),
        "--fresh",
        "--output",
        str(folder),
    ]
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
    began = time.time()
    subprocess.run(command, cwd=ROOT, env={**os.environ, **visible}, check=True, stdout=sys.stderr)
    took = time.time() - began
    rows = [
        row
        for row in parquet.load(folder).to_pylist()
        if row["outcome"] == "ok" and not row.get("follows")
    ]
    return account(rows, max(1, len(devices)), began=began, took=took)


def account(rows: Sequence[dict[str, Any]], gpus: int, *, began: float, took: float) -> Sweep:
    """Where the slots' time went, from the trials' starts and seconds."""
    slots: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        start = row["started_at"].timestamp()
        slots[row["gpu_uuid"]].append((start, start + row["slot_seconds"]))
    trials = [sorted(slot) for slot in slots.values()]
    first = min(slot[0][0] for slot in trials)
    last = max(slot[-1][1] for slot in trials)
    return Sweep(
        gpus=gpus,
        trials=len(rows),
        command_seconds=took,
        start_seconds=first - began,
        span_seconds=last - first,
        trial_seconds=sum(end - start for slot in trials for start, end in slot),
        before_seconds=sum(slot[0][0] - first for slot in trials),
        between_seconds=sum(
            later[0] - earlier[1] for slot in trials for earlier, later in pairwise(slot)
        ),
        after_seconds=sum(last - slot[-1][1] for slot in trials),
        phase_seconds=_phases(rows),
    )


def _phases(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    names = {
        "setup": "setup_seconds",
        "first step": "first_step_seconds",
        "counted steps": "counted_seconds",
    }
    phases = {name: statistics.fmean(row[column] for row in rows) for name, column in names.items()}
    return {
        **phases,
        "rest": statistics.fmean(row["slot_seconds"] for row in rows) - sum(phases.values()),
    }


def report(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Markdown."""
    yield "| GPUs | trials | efficiency | command s | to first trial s | span s | trials s | before | between | after |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for one in sweeps:
        efficiency = sweeps[0].gpus * sweeps[0].span_seconds / (one.gpus * one.span_seconds)
        spans = (one.command_seconds, one.start_seconds, one.span_seconds)
        slots = (one.trial_seconds, one.before_seconds, one.between_seconds, one.after_seconds)
        figures = " | ".join(f"{seconds:.1f}" for seconds in (*spans, *slots))
        yield f"| {one.gpus} | {one.trials} | {efficiency:.1%} | {figures} |"
    yield ""
    yield f"| GPUs | {' | '.join(f'{name}, s a trial' for name in sweeps[0].phase_seconds)} |"
    yield "| ---: |" + " ---: |" * len(sweeps[0].phase_seconds)
    for one in sweeps:
        yield f"| {one.gpus} | {' | '.join(f'{seconds:.2f}' for seconds in one.phase_seconds.values())} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.efficiency")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--output", type=Path, default=Path("runs/efficiency"))
    parser.add_argument("--recorded", type=Path, help="an efficiency.json to print again")
    parser.add_argument("--tiny", action="store_true", help="for a machine without a GPU")
    options = parser.parse_args()
    if options.recorded:
        print("\n".join(report([Sweep(**one) for one in json.loads(options.recorded.read_text())])))
        return
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    devices = [nvml.visible_device(uuid) for uuid in nvml.visible_uuids()]
    config = output / "sweep.yaml"
    write_config(
        config, options.trials, environment.cores() // max(options.gpus), tiny=options.tiny
    )
    sweeps = [run(config, devices[:count], output / f"{count}") for count in options.gpus]
    (output / "efficiency.json").write_text(json.dumps([asdict(one) for one in sweeps], indent=1))
    print("\n".join(report(sweeps)))


if __name__ == "__main__":
    main()
