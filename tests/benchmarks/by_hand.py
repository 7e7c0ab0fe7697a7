"""The cost of measuring by hand: configurations of BERT-large, each in a process of its own.

    python -m tests.benchmarks.by_hand [CONFIG] [--count 12] [--seed 0] [--output FILE.json]

Draws configurations from a plan. Their processes have no code of this project but
tests/gpu/bare.py. ``python -m tests.benchmarks.tables by_hand FILE.json`` prints the figures again,
and the share of them that a sweep took. ``--tiny`` shrinks model and data for a CPU.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.benchmarks.recorded.by_hand import report

ROOT = Path(__file__).parents[2]
SCRIPT = """
import bare, json, sys
bare.CASES["drawn"] = json.loads(sys.argv.pop())
bare.main()
"""
TIMEOUT_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.by_hand")
    config = ROOT / "configs" / "bert_large.yaml"
    parser.add_argument("config", type=Path, nargs="?", default=config, help="of BERT-large")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    trials = plan(load_config(options.config), has_gpu=not options.tiny).trials
    sample: dict[str, Any] = {"planned": len(trials), "prices": []}
    for spec in random.Random(options.seed).sample(trials, min(options.count, len(trials))):
        price = price_of(spec, tiny=options.tiny)
        sample["prices"].append(price)
        print(f"{price['seconds']:.1f} s", file=sys.stderr, flush=True)
        if options.output:  # after each, because it takes minutes
            options.output.write_text(json.dumps(sample))
    print("\n".join(report(sample, [])))


def price_of(spec: TrialSpec, *, tiny: bool) -> dict[str, Any]:
    """Run one configuration by itself: its seconds, those of ``train()``, and why it failed."""
    axes = ("precision", "micro_batch", "activations", "optimizer")
    arguments = dict(spec.settings.training_arguments)
    # A TF32 flag is an error where there is no GPU, and the guides do not set what is off.
    if not arguments.get("tf32"):
        arguments.pop("tf32", None)
    began = time.perf_counter()
    training_seconds, failure = train(arguments, tiny=tiny)
    return {
        "choices": {axis: spec.choices[axis] for axis in axes},
        "seconds": time.perf_counter() - began,
        "training_seconds": training_seconds,
        "failure": failure,
    }


def train(arguments: dict[str, Any], *, tiny: bool) -> tuple[float | None, str]:
    """The Trainer's own seconds with these arguments; or the last line printed if it failed."""
    command = [sys.executable, "-c", SCRIPT, "drawn", "--samples", "16" if tiny else "512"]
    if tiny:
        command.append("--tiny")
    path = [str(ROOT / "tests" / "gpu"), os.environ.get("PYTHONPATH", "")]
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
        return None, f"not done after {TIMEOUT_SECONDS} s"
    if done.returncode != 0:
        errors = done.stderr.strip().splitlines() or ["no output"]
        return None, errors[-1][:200]
    return json.loads(done.stdout.splitlines()[-1])["train_runtime"], ""


if __name__ == "__main__":
    main()
