"""What the docs' way of measuring costs: a fresh process a configuration, one epoch of 512 samples, a plain Trainer.

    python -m tests.benchmarks.docs_method [CONFIG] [--count 12] [--run RUN] [--output FILE.json]

Draws configurations of a BERT-large sweep with a seed and prints the seconds of each, the price of the whole grid at
their mean, and what share of it a sweep's RUN took. The processes hold no code of this project but tests/gpu/bare.py.
``--tiny`` shrinks model and samples for a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from jobs.spec import TrialSpec
from orchestrator.planning.config import SweepConfig, load_config
from orchestrator.planning.plan import plan

ROOT = Path(__file__).parents[2]
BERT_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
BARE = "import bare, json, sys; case = json.loads(sys.argv.pop()); bare.CASES['drawn'] = lambda: case; bare.main()"
DEADLINE_SECONDS = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What one configuration took, from the start of its process to its end."""

    choices: dict[str, Any]
    seconds: float
    training_seconds: float | None
    """Of it in ``train()``, as the Trainer says."""
    failure: str = ""
    """The last line it said, where it did not end well: running out of memory has its price too."""


def drawn(
    config: SweepConfig, count: int, seed: int, *, has_gpu: bool
) -> tuple[list[TrialSpec], int]:
    """Some of the sweep's configurations, and how many it has. Raises ValueError where it is of another model."""
    if config.model.architecture != "bert" or dict(config.model.config) != BERT_LARGE:
        raise ValueError(f"{config.path}: tests/gpu/bare.py knows BERT-large only")
    trials = plan(config, has_gpu=has_gpu).trials
    return random.Random(seed).sample(list(trials), min(count, len(trials))), len(trials)


def measure(spec: TrialSpec, *, tiny: bool) -> Price:
    """Run one configuration by itself."""
    # Without a GPU the flag for TF32 is an error, and it is not the docs' way to set what is off anyway.
    arguments = {
        name: value
        for name, value in spec.recipe.training_arguments.items()
        if name != "tf32" or value
    }
    if tiny:
        arguments.pop("tf32", None)
    command = [
        sys.executable,
        "-c",
        BARE,
        "drawn",
        "--samples",
        "16" if tiny else "512",
        *["--tiny"] * tiny,
    ]
    path = [str(ROOT / "tests" / "gpu"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [*command, json.dumps(arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        failure = (
            ""
            if done.returncode == 0
            else (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
        )
        told = json.loads(done.stdout.splitlines()[-1]) if not failure else {}
    except subprocess.TimeoutExpired:
        failure, told = f"not done after {DEADLINE_SECONDS} s", {}
    return Price(
        choices={
            axis: spec.choices[axis]
            for axis in ("precision", "micro_batch", "activations", "optimizer")
        },
        seconds=time.perf_counter() - began,
        training_seconds=told.get("train_runtime"),
        failure=failure,
    )


def report(prices: Sequence[Price], planned: int, seed: int, run: Path | None) -> str:
    """Markdown: every price, the mean, the grid at that mean, and the run's share of it."""
    lines = ["| configuration | seconds | in train() | |", "| --- | ---: | ---: | --- |"]
    for price in prices:
        training = "" if price.training_seconds is None else f"{price.training_seconds:.1f}"
        name = " · ".join(map(str, price.choices.values()))
        lines.append(
            f"| {name} | {price.seconds:.1f} | {training} | {price.failure.replace('|', ' ')} |"
        )
    seconds = [price.seconds for price in prices]
    grid = statistics.mean(seconds) * planned
    lines += [
        "",
        f"{len(prices)} of {planned} configurations, drawn with seed {seed}: {min(seconds):.1f} to ",
    ]
    lines[-1] += (
        f"{max(seconds):.1f} s, mean {statistics.mean(seconds):.1f}; the grid at that mean: {grid:.0f} s."
    )
    if run is not None:
        rows = pq.read_table(
            run / "trials.parquet", columns=["slot_seconds", "outcome", "purpose"]
        ).to_pylist()
        rows = [
            row for row in rows if row["purpose"] == "search"
        ]  # what follows it is not the grid's
        took = sum(row["slot_seconds"] or 0.0 for row in rows)
        ran = sum(row["outcome"] != "skipped" for row in rows)
        lines += [
            "",
            f"{run} ran {ran} trials in {took:.0f} slot seconds: {took / grid:.2%} of that.",
        ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.docs_method")
    parser.add_argument(
        "config", type=Path, nargs="?", default=ROOT / "configs" / "bert_large.yaml"
    )
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--run", type=Path, help="a sweep's run folder, to state its share of the price"
    )
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    trials, planned = drawn(
        load_config(options.config), options.count, options.seed, has_gpu=not options.tiny
    )
    prices = []
    for spec in trials:
        prices.append(measure(spec, tiny=options.tiny))
        print(
            f"{prices[-1].seconds:6.1f} s  {prices[-1].choices} {prices[-1].failure}",
            file=sys.stderr,
            flush=True,
        )
        if options.output:  # after each, for it takes minutes
            options.output.write_text(
                json.dumps({"planned": planned, "prices": [asdict(price) for price in prices]})
            )
    print(report(prices, planned, options.seed, options.run))


if __name__ == "__main__":
    main()
