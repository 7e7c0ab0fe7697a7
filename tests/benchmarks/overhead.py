"""What an isolated trial costs beside its counted steps: our fork, a fresh process of ours, bare Ray Tune.

    python -m tests.benchmarks.overhead [--count 5] [--output FILE.json]

The same BERT-large configuration (bf16, micro-batch 16, AdamW) so often each way, one at a time. Overhead is the time
from asking for the trial to having its result, less the counted steps: process, imports, context, model, Trainer,
warm-up, teardown. Bare Ray Tune is a function trainable in a new actor a trial, training as tests/gpu/bare.py does.
``--tiny`` shrinks the model for a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobs.isolation.slot import Slot
from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, DataSpec, Isolation, ModelSpec, SyntheticData, TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan

ROOT = Path(__file__).parents[2]
BARE = ROOT / "tests" / "gpu"
CHOSEN: Mapping[str, Choice] = {
    "precision": "bf16",
    "micro_batch": 16,
    "activations": "keep",
    "optimizer": "adamw_torch_fused",
}
BERT_TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to isolate a trial: seconds of each trial beside its counted steps, and what was paid once before."""

    name: str
    overhead_seconds: tuple[float, ...]
    counted_seconds: tuple[float, ...]
    once_seconds: float = 0.0


def chosen(choices: Mapping[str, Choice] = CHOSEN, *, tiny: bool) -> TrialSpec:
    """The trial of the shipped plan with these choices, all of its steps counted."""
    trials = plan(load_config(ROOT / "configs" / "bert_large.yaml"), has_gpu=not tiny).trials
    spec = next(one for one in trials if choices.items() <= dict(one.choices).items())
    spec = replace(spec, measure=replace(spec.measure, relative_error=0.0))
    if not tiny:
        return spec
    model = ModelSpec(task="sequence-classification", architecture="bert", config=BERT_TINY)
    return replace(spec, model=model, data=DataSpec(synthetic=SyntheticData(sequence_length=32)))


def run(slot: Slot, spec: TrialSpec) -> TrialRecord:
    """A trial's record. Raises RuntimeError where it did not end well."""
    record = slot.run(spec, spec.measure.timeout_seconds)
    if record.outcome is not Outcome.OK:
        raise RuntimeError(f"{record.outcome}: {record.reason}\n{record.log}")
    return record


def ours(spec: TrialSpec, isolation: Isolation, count: int, cpus: int) -> Way:
    """Trials in one slot, after its parent has been started."""
    spec = replace(spec, measure=replace(spec.measure, isolation=isolation))
    overhead, counted = [], []
    with Slot(cpus) as slot:
        began = time.perf_counter()
        slot.start()
        once = time.perf_counter() - began
        for repeat in range(count):
            began = time.perf_counter()
            record = run(slot, replace(spec, repeat=repeat))
            took = time.perf_counter() - began
            counted.append(float(record.measurements["counted_seconds"]))
            overhead.append(took - counted[-1])
    return Way(
        name=f"ours, {isolation}",
        overhead_seconds=tuple(overhead),
        counted_seconds=tuple(counted),
        once_seconds=once,
    )


def bare_tune(spec: TrialSpec, count: int, cpus: int, *, tiny: bool) -> Way:
    """Trials of Ray Tune as its own documentation has them, each in a new process, one after another."""
    import ray
    from ray import tune

    arguments = {
        name: value
        for name, value in spec.recipe.training_arguments.items()
        if name != "tf32" or value
    }
    steps, warmup = spec.measure.steps or 10, spec.measure.warmup_steps

    def train(config: dict[str, Any]) -> None:
        sys.path.insert(0, str(BARE))
        import bare

        bare.CASES["drawn"] = lambda: arguments
        bare.WARMUP_STEPS = warmup
        figures, _ = bare.run("drawn", samples=spec.micro_batch * (warmup + steps), tiny=tiny)
        tune.report({"counted": sum(figures["counted_step_seconds"])})

    began = time.perf_counter()
    ray.init(include_dashboard=False, log_to_driver=False)
    once = time.perf_counter() - began
    with TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(train, {"cpu": cpus, "gpu": 0 if tiny else 1}),
            param_space={"repeat": tune.grid_search(list(range(count)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=1, reuse_actors=False),
            run_config=tune.RunConfig(verbose=0, storage_path=folder),
        )
        began = time.perf_counter()
        results = tuner.fit()
        took = (time.perf_counter() - began) / count
    ray.shutdown()
    if results.errors:
        raise results.errors[0]
    counted = tuple(float(result.metrics["counted"]) for result in results if result.metrics)
    return Way(
        name="bare Ray Tune, a process a trial",
        overhead_seconds=tuple(took - seconds for seconds in counted),
        counted_seconds=counted,
        once_seconds=once,
    )


def report(ways: list[Way]) -> Iterator[str]:
    """Markdown."""
    yield "| a trial's process | overhead s: median | least | most | counted steps s | paid once s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for way in ways:
        seconds = way.overhead_seconds
        figures = (statistics.median(seconds), min(seconds), max(seconds))
        figures += (statistics.median(way.counted_seconds), way.once_seconds)
        yield f"| {way.name} | {' | '.join(f'{figure:.2f}' for figure in figures)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.overhead")
    parser.add_argument("--count", type=int, default=5, help="trials each way")
    parser.add_argument("--cpus", type=int, default=8, help="cores of a trial")
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    spec = chosen(tiny=options.tiny)
    ways = [
        ours(spec, "fork", options.count, options.cpus),
        ours(spec, "fresh", options.count, options.cpus),
        bare_tune(spec, options.count, options.cpus, tiny=options.tiny),
    ]
    if options.output:
        options.output.write_text(json.dumps([asdict(way) for way in ways]))
    print("\n".join(report(ways)))


if __name__ == "__main__":
    main()
