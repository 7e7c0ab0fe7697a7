"""The cost of measuring by hand: configurations of BERT-large, each in a process of its own.

    python -m tests.benchmarks.by_hand [CONFIG] [--count 12] [--seed 0] [--output FILE.json]

Draws configurations from a plan. Their processes have no code of this project but
tests/gpu/bare.py. ``python -m tests.benchmarks.tables by_hand FILE.json`` prints the figures again,
and the share of them that a sweep took. ``--tiny`` shrinks model and data for a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.benchmarks.bare_training import BARE, BERT_LARGE, ROOT, plain_arguments
from tests.benchmarks.recorded.by_hand import Price, Sample, report

SCRIPT = """
import bare, json, sys
case = json.loads(sys.argv.pop())
bare.CASES["drawn"] = lambda: case
bare.main()
"""
TIMEOUT_SECONDS = 600


def main() -> None:
    """Measure and print."""
    options = command_line().parse_args()
    trials = planned(options.config, tiny=options.tiny)
    drawn = random.Random(options.seed).sample(trials, min(options.count, len(trials)))
    prices: tuple[Price, ...] = ()
    for spec in drawn:
        prices += (price_of(spec, tiny=options.tiny),)
        print(f"{prices[-1].seconds:.1f} s", file=sys.stderr, flush=True)
        sample = Sample(planned=len(trials), prices=prices)
        if options.output:  # after each, because it takes minutes
            sample.write(options.output)
    print("\n".join(report(sample, [])))


def command_line() -> argparse.ArgumentParser:
    """What the benchmark takes."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.by_hand")
    config = ROOT / "configs" / "bert_large.yaml"
    parser.add_argument("config", type=Path, nargs="?", default=config)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--tiny", action="store_true")
    return parser


def planned(path: Path, *, tiny: bool) -> list[TrialSpec]:
    """The plan of a config. Raises ValueError if its model is not BERT-large."""
    config = load_config(path)
    if config.model.architecture != "bert" or dict(config.model.config) != BERT_LARGE:
        raise ValueError(f"{path}: tests/gpu/bare.py trains BERT-large only")
    return list(plan(config, has_gpu=not tiny).trials)


def price_of(spec: TrialSpec, *, tiny: bool) -> Price:
    """Run one configuration by itself."""
    axes = ("precision", "micro_batch", "activations", "optimizer")
    began = time.perf_counter()
    figures, failure = train(plain_arguments(spec), tiny=tiny)
    return Price(
        choices={axis: spec.choices[axis] for axis in axes},
        seconds=time.perf_counter() - began,
        training_seconds=figures.get("train_runtime"),
        failure=failure,
    )


def train(arguments: Mapping[str, Any], *, tiny: bool) -> tuple[dict[str, Any], str]:
    """What bare.py prints for these training arguments; or why it failed."""
    command = [sys.executable, "-c", SCRIPT, "drawn", "--samples", "16" if tiny else "512"]
    if tiny:
        command.append("--tiny")
    path = [str(BARE), os.environ.get("PYTHONPATH", "")]
    try:
        done = subprocess.run(
            [*command, json.dumps(arguments)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}, f"not done after {TIMEOUT_SECONDS} s"
    if done.returncode != 0:
        errors = done.stderr.strip().splitlines() or ["no output"]
        return {}, errors[-1][:200]
    return json.loads(done.stdout.splitlines()[-1]), ""


if __name__ == "__main__":
    main()
