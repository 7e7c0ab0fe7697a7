"""Predictions of several configs in one file, made before their trials are measured.

    python -m tests.benchmarks.predictions CONFIG.yaml ... --output FILE.parquet

A file is never written twice, because it may be the evidence that predictions came first.
tests/data/predictions/ has rounds of configs with the file of each. After the sweeps of a round,
``python -m tests.benchmarks.tables predictions FILE.parquet RUNS`` prints the errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.reporting.prediction import row
from orchestrator.storage.tables.predictions import write_predictions


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict and write. Raises FileExistsError."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.predictions")
    parser.add_argument("configs", type=Path, nargs="+", metavar="CONFIG.yaml")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.parquet")
    options = parser.parse_args(arguments)
    if options.output.exists():
        raise FileExistsError(f"{options.output}: predictions are not made again")
    rows = []
    for config in options.configs:
        trials = plan(load_config(config)).trials
        predictions = predict(trials, load_gpu("h200"))
        rows += [{"config": config.stem, **row(prediction)} for prediction in predictions]
    write_predictions(rows, options.output, gpu="h200")
    unknown = sum(bool(values["unknown"]) for values in rows)
    print(f"{options.output}: {len(rows)} predictions, {unknown} unknown")


if __name__ == "__main__":
    main()
