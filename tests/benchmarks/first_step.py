"""Where the seconds go from Enter to the first counted step, and to the answer.

    python -m tests.benchmarks.first_step [--repeats 3] [--config FILE] [--gpu-minutes 0.2]

Runs `tune` and `batch_size` in turn, each in a process and a folder of its own, on a tiny BERT
unless a config is given. Each column is the median of the repeats, in seconds since Enter.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TINY = """\
model:
  task: sequence-classification
  architecture: bert
  config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64,
    vocab_size: 128, max_position_embeddings: 16}
data: {synthetic: {sequence_length: 16, samples: 16}}
training_arguments: {per_device_train_batch_size: 2}
measure: {timeout: 60s}
"""
STAGES = ("cluster ready", "trial begins", "set up", "first step done", "counted", "answer")
"""In order: Ray runs and the session is open; a parent forks the first trial; its model and data
are there; its first step has ended; its warm-up has ended; the verb has printed."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.first_step",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    add("--repeats", type=int, default=3, help="runs of each verb")
    add("--config", type=Path, help="default: a tiny BERT")
    add("--gpu-minutes", default="0.2", help="of tune")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = options.config
        if config is None:
            config = Path(folder) / "tiny.yaml"
            config.write_text(TINY)
        verbs = {"tune": ("--gpu-minutes", options.gpu_minutes), "batch_size": ()}
        runs: dict[str, list[Mapping[str, float]]] = {verb: [] for verb in verbs}
        for repeat in range(options.repeats):
            for verb, arguments in verbs.items():
                output = Path(folder) / f"{verb}{repeat}"
                runs[verb].append(seconds_of(verb, config, output, arguments))
    print("\n".join(table(runs)))


def seconds_of(
    verb: str, config: Path, output: Path, arguments: Sequence[str]
) -> Mapping[str, float]:
    """Stage -> seconds since Enter, of one run. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", f"orchestrator.{verb}", str(config), "--output", str(output)]
    entered = time.time()
    subprocess.run(
        [*command, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ).check_returncode()
    answered = time.time()
    record = _first_record(output)
    figures = record["measurements"]
    began = record["provenance"]["started_at"]
    set_up = began + figures["setup_seconds"]
    first_step = set_up + figures["first_step_seconds"]
    step = figures["step_seconds_median"]
    counted = first_step + (figures["warmup_steps"] - 1) * step
    # In the order of STAGES.
    moments = [_cluster_ready(output), began, set_up, first_step, counted, answered]
    return {stage: at - entered for stage, at in zip(STAGES, moments, strict=True)}


def _cluster_ready(output: Path) -> float:
    """The time of the first event in the log of a sweep; NaN for `batch_size`, which has none."""
    log = output / "log.jsonl"
    if not log.exists():
        return math.nan
    first = json.loads(log.read_text().splitlines()[0])
    return datetime.fromisoformat(first["time"]).timestamp()


def _first_record(output: Path) -> Mapping[str, Any]:
    """The record of the first trial that ended ok."""
    records = []
    for path in (output / "records").glob("*.json"):
        record = json.loads(path.read_text())
        if record["outcome"] == "ok":
            records.append(record)
    return min(records, key=lambda record: float(record["provenance"]["started_at"]))


def table(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[str]:
    """The lines of the table."""
    yield f"| seconds since Enter | {' | '.join(STAGES)} |"
    yield "| --- |" + " --- |" * len(STAGES)
    for verb, listed in runs.items():
        cells = [_cell(statistics.median(run[stage] for run in listed)) for stage in STAGES]
        yield f"| {verb} | {' | '.join(cells)} |"


def _cell(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    return f"{seconds:.1f}"


if __name__ == "__main__":
    main()
