"""Predictions against measurements: write them with no GPU, measure later, compare.

``python -m tests.benchmarks.predictions write ROUND`` predicts every config of
tests/data/predictions/ROUND/ and writes predicted.parquet beside them, once. After
``python -m orchestrator.sweep CONFIG --output RUNS/NAME`` on a GPU for each config,
``... compare ROUND RUNS`` prints the errors of figures that no measurement has influenced.
``... compare ROUND RUNS --fresh`` predicts the same trials again with today's code, which has
learned from them. ``... recorded`` predicts and compares the runs in docs/results/.
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

from jobs.techniques import AXES
from orchestrator.labels import label
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.prediction import CARDS
from orchestrator.reporting.prediction import row
from orchestrator.storage.tables.parquet import read_trials_file
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
_COLUMNS = {
    "allocated": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "device": "device_peak_bytes",
}
"""Predicted figure -> the column that measures it."""
_LARGE_ERROR = 0.01
Row = Mapping[str, Any]


def predicted(config: Path) -> list[dict[str, Any]]:
    """A row per trial, with its config's name and the mean seconds of a prediction."""
    trials = plan(load_config(config)).trials
    begin = time.perf_counter()
    rows = [row(prediction) for prediction in predict(trials, load_gpu("h200"))]
    seconds = round((time.perf_counter() - begin) / len(rows), 2)
    return [{"config": config.stem, **values, "predict_seconds": seconds} for values in rows]


def compared(
    predictions: Iterable[Row], measured: Mapping[str, Sequence[Row]]
) -> Iterator[dict[str, Any]]:
    """Predicted rows beside the measured ones of the same choices: relative errors, false fits."""
    by_identity = {}
    for name, rows in measured.items():
        for measured_row in rows:
            by_identity[name, _identity(measured_row)] = measured_row
    for prediction in predictions:
        choices = json.loads(prediction["choices"])
        actual = by_identity.get((prediction["config"], _identity(choices)))
        if actual is not None and actual["outcome"] in ("ok", "out_of_memory"):
            yield {
                "prediction": prediction,
                "actual": actual,
                "errors": _errors(prediction, actual),
                "false_fits": _false_fits(prediction, actual),
            }


def _identity(choices: Row) -> tuple[str, ...]:
    return tuple(str(choices[axis]) for axis in AXES)


def _errors(prediction: Row, actual: Row) -> dict[str, float]:
    """Figure -> its relative error."""
    if actual["outcome"] != "ok":
        return {}
    errors = {}
    for figure, column in _COLUMNS.items():
        if prediction[f"{figure}_bytes"]:
            errors[figure] = prediction[f"{figure}_bytes"] / actual[column] - 1
    return errors


def _false_fits(prediction: Row, actual: Row) -> list[int]:
    """Cards that suffice by the prediction and not by the measurement."""
    ran_out = actual["outcome"] == "out_of_memory"
    cards = [card for card in CARDS if prediction[f"fits_{card}_gb"] == "yes"]
    return [card for card in cards if ran_out or actual["device_peak_bytes"] > CARDS[card]]


def summary(comparisons: Sequence[Row]) -> Iterator[str]:
    """Per config and in all: trials, median and worst absolute errors, false fits."""
    configs = list(dict.fromkeys(row["prediction"]["config"] for row in comparisons))
    counts = f"{'config':<18} {'trials':>6} {'unknown':>7}"
    yield f"{counts}   allocated: median, worst   reserved   device   false fits"
    for name in configs:
        chosen = [row for row in comparisons if row["prediction"]["config"] == name]
        yield _summary_line(name, chosen)
    yield _summary_line("all", comparisons)


def _summary_line(name: str, comparisons: Sequence[Row]) -> str:
    unknown = sum(not row["prediction"]["allocated_bytes"] for row in comparisons)
    false_fits = sum(len(row["false_fits"]) for row in comparisons)
    errors = "   ".join(_error_range(figure, comparisons) for figure in _COLUMNS)
    return f"{name:<18} {len(comparisons):>6} {unknown:>7}   {errors}   {false_fits}"


def _error_range(figure: str, comparisons: Sequence[Row]) -> str:
    errors = [abs(row["errors"][figure]) for row in comparisons if figure in row["errors"]]
    return f"{statistics.median(errors):.3%} {max(errors):.3%}" if errors else "-"


def details(comparisons: Sequence[Row]) -> Iterator[str]:
    """Every row whose allocated peak was off by more than 1 %, the worst first."""
    off = [row for row in comparisons if _allocated_error(row) > _LARGE_ERROR]
    for comparison in sorted(off, key=_allocated_error, reverse=True):
        prediction = comparison["prediction"]
        words = label(json.loads(prediction["choices"]), list(AXES))
        yield f"  {comparison['errors']['allocated']:+.2%}  {prediction['config']}  {words}"


def _allocated_error(comparison: Row) -> float:
    return abs(comparison["errors"].get("allocated", 0.0))


def _write(folder: Path) -> None:
    path = folder / "predicted.parquet"
    if path.exists():
        raise FileExistsError(f"{path}: a prediction is not made again; begin a new round")
    rows = []
    for config in sorted(folder.glob("*.yaml")):
        rows += predicted(config)
    write_predictions(rows, path, gpu="h200")
    unknown = sum(bool(values["unknown"]) for values in rows)
    slowest = max(values["predict_seconds"] for values in rows)
    counts = f"{len(rows)} predictions, {unknown} unknown"
    print(f"{path}: {counts}, at most {slowest} s each (mean of a config)")


def _predicted_now(configs: Iterable[Path]) -> list[dict[str, Any]]:
    print(f"predicted now, by today's code: {_versions(present_versions())}")
    rows = []
    for config in configs:
        rows += predicted(config)
    return rows


def _predicted_before(folder: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    rows, versions = read_predictions(folder / "predicted.parquet")
    print(f"predicted before the measurement, {folder.name} round: {_versions(versions)}")
    return [values for values in rows if values["config"] in names]


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers"))


def _compare(rows: Iterable[Row], folders: Mapping[str, Path]) -> None:
    measured = {
        name: read_trials_file(folder / "trials.parquet").rows for name, folder in folders.items()
    }
    comparisons = list(compared(rows, measured))
    print("\n".join([*summary(comparisons), *details(comparisons)]))


def _compare_round(folder: Path, runs: Path, *, fresh: bool) -> None:
    configs = {path.stem: path for path in folder.glob("*.yaml")}
    folders = {path.name: path for path in sorted(runs.iterdir()) if path.name in configs}
    if fresh:
        _compare(_predicted_now(configs[name] for name in folders), folders)
    else:
        _compare(_predicted_before(folder, folders), folders)


def _command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.predictions", description=__doc__
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("recorded")
    write = verbs.add_parser("write")
    compare = verbs.add_parser("compare")
    for verb in (write, compare):
        verb.add_argument("round", choices=ROUNDS)
    compare.add_argument("runs", type=Path, help="folder of run folders, named by their configs")
    fresh = "predict again with today's code"
    compare.add_argument("--fresh", action="store_true", help=fresh)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the three verbs."""
    options = _command_line().parse_args(arguments)
    if options.verb == "write":
        _write(DATA / options.round)
    elif options.verb == "recorded":
        configs = [Path("configs") / f"{name}.yaml" for name in RECORDED]
        folders = {name: Path("docs/results") / run for name, run in RECORDED.items()}
        _compare(_predicted_now(configs), folders)
    else:
        _compare_round(DATA / options.round, options.runs, fresh=options.fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
