"""Predictions of many configurations in one file, to be compared with what was measured.

    python -m tests.benchmarks.predictions CONFIG.yaml ... --output FILE.parquet
    python -m tests.benchmarks.predictions --recorded docs/results --output FILE.parquet [--times]

The first form predicts configs before their trials are measured: a file is never written twice,
because it may be the evidence that predictions came first. tests/data/predictions/ has rounds of
configs with the file of each. The second form replays every distinct configuration of recorded
runs. It should run with the transformers of those runs: what is installed decides the figures.
``python -m tests.benchmarks.tables predictions FILE.parquet RUNS`` prints the errors of either.
With ``--times`` a few layers of each model are traced, and the seconds of a step's kernels at the
card's full rates are written instead: ``tables times`` fits and judges the efficiencies.
"""

import argparse
import functools
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict, sharing_traces
from orchestrator.prediction.gpus import Gpu, load_gpu
from orchestrator.prediction.time.operations import LIBRARY_OPTIMIZER, OPTIMIZER, StepWork
from orchestrator.prediction.time.ranks_time import time_of
from orchestrator.prediction.time.step_time import full_rate_seconds
from orchestrator.reporting.verbs.prediction import row, time_row
from orchestrator.storage.tables.parquet import write_predictions
from tests.benchmarks.recorded.configurations import planned_again, recorded_runs

_MODELS_A_PROCESS = 12
"""Models traced by one process: libraries keep memory of each."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict and write. Raises FileExistsError."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.predictions")
    parser.add_argument("configs", type=Path, nargs="*", metavar="CONFIG.yaml")
    parser.add_argument("--recorded", type=Path, metavar="RUNS", help="a folder of run folders")
    parser.add_argument("--gpu", default="h200", help="of whose constants the figures are")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.parquet")
    parser.add_argument("--times", action="store_true", help="seconds at full rates, not memory")
    most = "with --times: trace only so many variants of each model, those of most trials first"
    parser.add_argument("--most", type=int, default=1000, help=most)
    options = parser.parse_args(arguments)
    if options.output.exists():
        raise FileExistsError(f"{options.output}: predictions are not made again")
    rows: list[dict[str, Any]] = []
    for name, trials in _named_trials(options):
        rows += [{"config": name, **values} for values in _predicted(trials, options)]
        print(f"{name}: {len(trials)} configurations", flush=True)
    write_predictions(rows, options.output, gpu=options.gpu)
    unknown = sum(bool(values.get("unknown")) for values in rows)
    print(f"{options.output}: {len(rows)} predictions, {unknown} unknown")


def _named_trials(options: argparse.Namespace) -> Iterator[tuple[str, list[TrialSpec]]]:
    for config in options.configs:
        yield config.stem, list(plan(load_config(config)).trials)
    if options.recorded is not None:
        yield from planned_again(recorded_runs(options.recorded))


def _predicted(trials: Sequence[TrialSpec], options: argparse.Namespace) -> list[dict[str, Any]]:
    models = sharing_traces(trials)
    if options.times:
        models = sorted(models, key=len, reverse=True)[: options.most]
    chunks = []
    for begin in range(0, len(models), _MODELS_A_PROCESS):
        chunk: list[TrialSpec] = []
        for model in models[begin : begin + _MODELS_A_PROCESS]:
            chunk += model
        chunks.append(chunk)
    context = multiprocessing.get_context("spawn")
    rows = []
    with context.Pool(1, maxtasksperchild=1) as pool:
        rows_of = functools.partial(_times_of if options.times else _rows_of, options.gpu)
        for predicted in pool.imap(rows_of, chunks, chunksize=1):
            rows += predicted
    return rows


def _rows_of(gpu: str, trials: Sequence[TrialSpec]) -> list[dict[str, Any]]:
    constants = load_gpu(gpu)
    predictions = predict(trials, constants)
    times = [None if own.step is None else time_of(own.step, constants) for own in predictions]
    return [row(own) | time_row(time) for own, time in zip(predictions, times, strict=True)]


def _times_of(gpu: str, trials: Sequence[TrialSpec]) -> list[dict[str, Any]]:
    constants = load_gpu(gpu)
    steps = zip(trials, [own.step for own in predict(trials, constants)], strict=True)
    return [
        time_features(spec, step, constants)
        for spec, step in steps
        if step is not None and step.sharing is None
    ]


def time_features(spec: TrialSpec, step: StepWork, gpu: Gpu) -> dict[str, Any]:
    """A row of a file of ``--times``."""
    return {
        "choices": json.dumps(dict(spec.choices)),
        "is_compiled": step.is_compiled,
        "samples": step.samples,
        "launches": step.work.launches(),
        "optimizer_launches": step.work.launches(OPTIMIZER),
        "library_launches": step.work.launches(LIBRARY_OPTIMIZER),
        "model_flop": step.work.model_flop,
        "full_rate_seconds": json.dumps(full_rate_seconds(step, gpu)),
    }


if __name__ == "__main__":
    main()
