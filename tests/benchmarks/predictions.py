"""Predictions against measurements: write them with no GPU, measure later, compare.

``python -m tests.benchmarks.predictions write ROUND`` predicts every config of tests/data/predictions/ROUND/ and writes
predicted.parquet beside them, once. After ``python -m orchestrator.sweep CONFIG --output RUNS/NAME`` on a GPU for each,
``... compare ROUND RUNS`` prints how far off they were: figures of predictions that no measurement has touched.
``... compare ROUND RUNS --fresh`` predicts the same trials again with the code as it is now, which has learned from
them. ``... recorded`` predicts and compares what docs/results/ has.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.techniques import AXES
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.prediction import CARDS
from orchestrator.reporting.prediction import row
from orchestrator.storage.tables.parquet import read
from orchestrator.storage.tables.predictions import (
    present_versions,
    read_predictions,
    write_predictions,
)

DATA = Path(__file__).parents[1] / "data" / "predictions"
ROUNDS = sorted(path.name for path in DATA.iterdir())
RECORDED = {
    "bert_large": "2026-11-20-bert_large-7xh200-part",
    "all_techniques": "2026-11-21-all_techniques-2xh200",
    "docs_table": "2026-11-21-docs_table-h200",
}
_PAIRS = {
    "allocated": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "device": "device_peak_bytes",
}
Row = Mapping[str, Any]


def predicted(config: Path) -> list[dict[str, Any]]:
    """A row for each of the config's trials, with its config's name and the mean seconds a prediction took."""
    trials = plan(load_config(config)).trials
    begin = time.perf_counter()
    rows = [row(prediction) for prediction in predict(trials, load_gpu("h200"))]
    seconds = (time.perf_counter() - begin) / len(rows)
    return [
        {"config": config.stem, **values, "predict_seconds": round(seconds, 2)} for values in rows
    ]


def compared(
    predictions: Iterable[Row], measured: Mapping[str, Sequence[Row]]
) -> Iterator[dict[str, Any]]:
    """Predicted rows beside the measured ones of the same choices: relative errors, and verdicts that were wrong."""
    found = {(name, _identity(row)): row for name, rows in measured.items() for row in rows}
    for prediction in predictions:
        actual = found.get((prediction["config"], _identity(json.loads(prediction["choices"]))))
        if actual is None or actual["outcome"] not in ("ok", "out_of_memory"):
            continue
        errors = {
            name: prediction[f"{name}_bytes"] / actual[column] - 1
            for name, column in _PAIRS.items()
            if actual["outcome"] == "ok" and prediction[f"{name}_bytes"]
        }
        yield {
            "prediction": prediction,
            "actual": actual,
            "errors": errors,
            "false_fits": _false_fits(prediction, actual),
        }


def _identity(choices: Row) -> tuple[str, ...]:
    return tuple(str(choices[axis]) for axis in AXES)


def _false_fits(prediction: Row, actual: Row) -> list[int]:
    """Cards that the prediction said suffice and the measurement says do not."""
    ran_out = actual["outcome"] == "out_of_memory"
    return [
        card
        for card, size in CARDS.items()
        if prediction[f"fits_{card}_gb"] == "yes"
        and (ran_out or actual["device_peak_bytes"] > size)
    ]


def summary(comparisons: Sequence[Row]) -> Iterator[str]:
    """Per config and in all: how many, median and worst absolute error, verdicts that were wrong."""
    configs = list(dict.fromkeys(c["prediction"]["config"] for c in comparisons))
    yield f"{'config':<18} {'trials':>6} {'unknown':>7}   allocated: median, worst   reserved   device   false fits"
    for name in (*configs, "all"):
        chosen = [c for c in comparisons if name in ("all", c["prediction"]["config"])]
        unknown = sum(not c["prediction"]["allocated_bytes"] for c in chosen)
        parts = []
        for figure in _PAIRS:
            errors = [abs(c["errors"][figure]) for c in chosen if figure in c["errors"]]
            parts.append(f"{statistics.median(errors):.3%} {max(errors):.3%}" if errors else "-")
        wrong = sum(len(c["false_fits"]) for c in chosen)
        yield f"{name:<18} {len(chosen):>6} {unknown:>7}   {'   '.join(parts)}   {wrong}"


def details(comparisons: Sequence[Row]) -> Iterator[str]:
    """Every row whose allocated peak was off by more than 1 %, the worst first."""
    off = [c for c in comparisons if abs(c["errors"].get("allocated", 0)) > 0.01]
    for comparison in sorted(off, key=lambda c: -abs(c["errors"]["allocated"])):
        choices = json.loads(comparison["prediction"]["choices"])
        label = " ".join(
            f"{axis}={value}" for axis, value in choices.items() if value != AXES[axis].default
        )
        yield f"  {comparison['errors']['allocated']:+.2%}  {comparison['prediction']['config']}  {label}"


def _write(folder: Path) -> None:
    path = folder / "predicted.parquet"
    if path.exists():
        raise FileExistsError(f"{path}: a prediction is not made again; begin a new round")
    rows = [values for config in sorted(folder.glob("*.yaml")) for values in predicted(config)]
    write_predictions(rows, path, gpu="h200")
    unknown = sum(bool(values["unknown"]) for values in rows)
    slowest = max(values["predict_seconds"] for values in rows)
    print(
        f"{path}: {len(rows)} predictions, {unknown} unknown, at most {slowest} s each (mean of a config)"
    )


def _fresh(folder: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    print(f"predicted now, by the code as it is: {_traced_with(present_versions())}")
    return [values for name in names for values in predicted(folder / f"{name}.yaml")]


def _committed(folder: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    rows, versions = read_predictions(folder / "predicted.parquet")
    print(f"predicted before the measurement, {folder.name} round: {_traced_with(versions)}")
    return [values for values in rows if values["config"] in names]


def _traced_with(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers"))


def _print(comparisons: Sequence[Row]) -> None:
    print("\n".join([*summary(comparisons), *details(comparisons)]))


def _tables(folders: Mapping[str, Path]) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, pa.Table] = {
        name: read(path / "trials.parquet") for name, path in folders.items()
    }
    return {name: table.to_pylist() for name, table in tables.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the three verbs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.predictions", description=__doc__
    )
    verbs = parser.add_subparsers(dest="what", required=True)
    write, compare, _ = (verbs.add_parser(name) for name in ("write", "compare", "recorded"))
    for verb in (write, compare):
        verb.add_argument("round", choices=ROUNDS)
    compare.add_argument("runs", type=Path, help="folder of run folders, one a config, by its name")
    compare.add_argument(
        "--fresh", action="store_true", help="predict again with the code as it is now"
    )
    options = parser.parse_args(arguments)
    if options.what == "write":
        _write(DATA / options.round)
    elif options.what == "recorded":
        folders = {name: Path("docs/results") / run for name, run in RECORDED.items()}
        rows = [
            values for name in folders for values in predicted(Path("configs") / f"{name}.yaml")
        ]
        _print(list(compared(rows, _tables(folders))))
    else:
        configs = {path.stem for path in (DATA / options.round).glob("*.yaml")}
        folders = {
            path.name: path for path in sorted(options.runs.iterdir()) if path.name in configs
        }
        rows = (_fresh if options.fresh else _committed)(DATA / options.round, folders)
        _print(list(compared(rows, _tables(folders))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
