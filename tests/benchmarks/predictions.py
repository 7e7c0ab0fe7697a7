"""Predictions of many configurations in one file, to be compared with what was measured.

    python -m tests.benchmarks.predictions CONFIG.yaml ... --output FILE.parquet
    python -m tests.benchmarks.predictions --recorded docs/results --output FILE.parquet

The first form predicts configs before their trials are measured: a file is never written twice,
because it may be the evidence that predictions came first. tests/data/predictions/ has rounds of
configs with the file of each. The second form replays every distinct configuration of recorded
runs. It should run with the transformers of those runs: what is installed decides the figures.
``python -m tests.benchmarks.tables predictions FILE.parquet RUNS`` prints the errors of either.
"""

import argparse
import functools
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict, sharing_traces
from orchestrator.prediction.gpus import load_gpu
from orchestrator.reporting.verbs.prediction import row
from orchestrator.storage.tables.predictions import write_predictions
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
    options = parser.parse_args(arguments)
    if options.output.exists():
        raise FileExistsError(f"{options.output}: predictions are not made again")
    rows: list[dict[str, Any]] = []
    for name, trials in _named_trials(options):
        rows += [{"config": name, **values} for values in _predicted(trials, options.gpu)]
        print(f"{name}: {len(trials)} configurations", flush=True)
    write_predictions(rows, options.output, gpu=options.gpu)
    unknown = sum(bool(values["unknown"]) for values in rows)
    print(f"{options.output}: {len(rows)} predictions, {unknown} unknown")


def _named_trials(options: argparse.Namespace) -> Iterator[tuple[str, list[TrialSpec]]]:
    for config in options.configs:
        yield config.stem, list(plan(load_config(config)).trials)
    if options.recorded is not None:
        yield from planned_again(recorded_runs(options.recorded))


def _predicted(trials: Sequence[TrialSpec], gpu: str) -> list[dict[str, Any]]:
    models = sharing_traces(trials)
    chunks = []
    for begin in range(0, len(models), _MODELS_A_PROCESS):
        chunk: list[TrialSpec] = []
        for model in models[begin : begin + _MODELS_A_PROCESS]:
            chunk += model
        chunks.append(chunk)
    context = multiprocessing.get_context("spawn")
    rows = []
    with context.Pool(1, maxtasksperchild=1) as pool:
        for predicted in pool.imap(functools.partial(_rows_of, gpu), chunks, chunksize=1):
            rows += predicted
    return rows


def _rows_of(gpu: str, trials: Sequence[TrialSpec]) -> list[dict[str, Any]]:
    return [row(prediction) for prediction in predict(trials, load_gpu(gpu))]


if __name__ == "__main__":
    main()
