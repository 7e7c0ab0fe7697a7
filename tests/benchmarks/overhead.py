"""What an isolated trial costs besides its counted steps: forked, fresh, and in plain Ray Tune.

    python -m tests.benchmarks.overhead [--count 5] [--output FILE.json]

The same BERT-large configuration (bf16, micro-batch 16, AdamW), one trial after another. Overhead
is the time from asking for a trial to having its result, less its counted steps: process, imports,
context, model, Trainer, warm-up, end. Plain Ray Tune is a function trainable with a new actor for
each trial, which trains as tests/gpu/bare.py does. ``--tiny`` shrinks the model for a CPU.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobs.isolation.slot import Slot
from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, DataSpec, Isolation, ModelSpec, SyntheticData, TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.benchmarks.bare_training import BARE, BERT_TINY, ROOT, plain_arguments
from tests.benchmarks.recorded.overhead import Way, report, write

CHOICES: Mapping[str, Choice] = {
    "precision": "bf16",
    "micro_batch": 16,
    "activations": "keep",
    "optimizer": "adamw_torch_fused",
}
NAMES: Mapping[Isolation, str] = {"fork": "ours, fork", "fresh": "ours, fresh"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.overhead")
    parser.add_argument("--count", type=int, default=5, help="trials of each way")
    parser.add_argument("--cpus", type=int, default=8, help="cores of a trial")
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    spec = trial(tiny=options.tiny)
    ways = [ours(spec, isolation, options.count, options.cpus) for isolation in NAMES]
    ways.append(ray_tune(spec, options.count, options.cpus, tiny=options.tiny))
    if options.output:
        write(ways, options.output)
    print("\n".join(report(ways)))


def trial(*, tiny: bool) -> TrialSpec:
    """The trial of the shipped plan with these choices; all of its steps count."""
    trials = plan(load_config(ROOT / "configs" / "bert_large.yaml"), has_gpu=not tiny).trials
    spec = next(own for own in trials if CHOICES.items() <= dict(own.choices).items())
    spec = replace(spec, measure=replace(spec.measure, relative_error=0.0))
    if not tiny:
        return spec
    model = ModelSpec(task="sequence-classification", architecture="bert", config=BERT_TINY)
    return replace(spec, model=model, data=DataSpec(synthetic=SyntheticData(sequence_length=32)))


def ours(spec: TrialSpec, isolation: Isolation, count: int, cpus: int) -> Way:
    """Trials in one slot, after its parent was started."""
    spec = replace(spec, measure=replace(spec.measure, isolation=isolation))
    overhead = []
    counted = []
    with Slot(cpus) as slot:
        began = time.perf_counter()
        slot.start()
        once = time.perf_counter() - began
        for repeat in range(count):
            began = time.perf_counter()
            record = slot.run(replace(spec, repeat=repeat), spec.measure.timeout_seconds)
            seconds = time.perf_counter() - began
            counted.append(_counted_seconds(record))
            overhead.append(seconds - counted[-1])
    return Way(
        name=NAMES[isolation],
        overhead_seconds=overhead,
        counted_seconds=counted,
        once_seconds=once,
    )


def _counted_seconds(record: TrialRecord) -> float:
    """Raises RuntimeError if the trial did not end ok."""
    if record.outcome is not Outcome.OK:
        raise RuntimeError(f"{record.outcome}: {record.reason}\n{record.provenance.log}")
    return float(record.measurements["counted_seconds"])


def ray_tune(spec: TrialSpec, count: int, cpus: int, *, tiny: bool) -> Way:
    """Trials of Ray Tune as in its documentation, each in a new process, one after another."""
    import ray
    from ray import tune

    began = time.perf_counter()
    ray.init(include_dashboard=False, log_to_driver=False)
    once = time.perf_counter() - began
    resources: dict[str, float] = {"cpu": cpus, "gpu": 0 if tiny else 1}
    with TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(_training(spec, tiny=tiny), resources),
            param_space={"repeat": tune.grid_search(list(range(count)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=1, reuse_actors=False),
            run_config=tune.RunConfig(verbose=0, storage_path=folder),
        )
        began = time.perf_counter()
        results = tuner.fit()
        seconds = (time.perf_counter() - began) / count
    ray.shutdown()
    if results.errors:
        raise results.errors[0]
    metrics = [results[number].metrics or {} for number in range(count)]
    counted = [float(own["counted"]) for own in metrics]
    return Way(
        name="plain Ray Tune, a process per trial",
        overhead_seconds=[seconds - own for own in counted],
        counted_seconds=counted,
        once_seconds=once,
    )


def _training(spec: TrialSpec, *, tiny: bool) -> Any:
    """A function for Tune that trains the trial as tests/gpu/bare.py does."""
    arguments = plain_arguments(spec)
    warmup = spec.measure.warmup_steps
    samples = spec.micro_batch * (warmup + (spec.measure.steps or 10))

    def train(config: dict[str, Any]) -> None:
        from ray import tune

        sys.path.insert(0, str(BARE))
        bare: Any = importlib.import_module("bare")
        bare.CASES["drawn"] = lambda: arguments
        bare.WARMUP_STEPS = warmup
        figures, _ = bare.run("drawn", samples=samples, tiny=tiny)
        tune.report({"counted": sum(figures["counted_step_seconds"])})

    return train


if __name__ == "__main__":
    main()
