"""Recorded configurations: the seconds of their kernels at full rates, and of their steps."""

import itertools
import json
import statistics
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.prediction.time.step_time import PRODUCTS
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.recorded.configurations import identity, measured_rows, recorded_runs
from tests.benchmarks.recorded.runs import read_predictions

HOST_BOUND = 0.1
"""Share of micro-batches without queued work above which a row is not GPU-bound."""
_SIZES = ("micro_batch", "accumulation", "sequence_length", "precision")
"""Axes that are no techniques."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """A configuration, its kernels, and what was measured."""

    config: str
    """The model and data that it shares with other rows."""
    model: str
    number_format: str
    is_compiled: bool
    techniques: tuple[str, ...]
    full_rate_seconds: Mapping[str, float]
    launches: float
    optimizer_launches: float
    library_launches: float
    model_flop: float
    seconds: float
    """The median of its measured steps."""
    samples: int
    device_bytes: int
    host_bound_share: float
    """Share of micro-batches after which the GPU had no queued work."""

    @property
    def all_launches(self) -> float:
        return self.launches + self.optimizer_launches + self.library_launches


def timed(options: Namespace, predicted: Path) -> Iterator[Timed]:
    """The configurations of the file that were measured on one GPU like that of its figures."""
    table, about = read_predictions(predicted)
    measured: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    models: dict[str, str] = {}
    for dataset in itertools.chain(*map(recorded_runs, options.runs)):
        for own in measured_rows(dataset):
            is_alone = (own.row.get("world_size") or 1) == 1
            on_it = is_alone and about["gpu"] in str(own.row["gpu_model"]).lower()
            if own.row["outcome"] == Outcome.OK and on_it:
                measured.setdefault((own.group, identity(own.row)), []).append(own.row)
                models[own.group] = _model_name(dataset.run.config["model"])
    for row in table:
        choices = json.loads(row["choices"])
        # Plans name the length of the section data; rows of runs without this axis do not.
        for own in (choices, {**choices, "sequence_length": "data"}):
            rows = measured.get((row["config"], identity(own)), [])
            if rows and not any(map(_waits_for_data, rows)):
                yield _timed(row, own, rows, models[row["config"]])
                break


def _timed(row: Row, choices: Row, rows: Sequence[Row], model: str) -> Timed:
    full = json.loads(row["full_rate_seconds"])
    products = {kind: own for kind, own in full.items() if kind.endswith(PRODUCTS)}
    speed = statistics.median(own["samples_per_second"] for own in rows)
    return Timed(
        config=row["config"],
        model=model,
        samples=row["samples"],
        device_bytes=max(own["device_peak_bytes"] for own in rows),
        number_format=max(products, key=products.__getitem__).partition(" ")[0],
        is_compiled=row["is_compiled"],
        techniques=techniques(choices),
        full_rate_seconds=full,
        launches=row["launches"],
        optimizer_launches=row["optimizer_launches"],
        library_launches=row["library_launches"],
        model_flop=row["model_flop"],
        seconds=row["samples"] / speed,
        host_bound_share=statistics.median(own["host_bound_share"] for own in rows),
    )


def techniques(choices: Row) -> tuple[str, ...]:
    """What differs from the default of its axis, and the number format."""
    names = [f"precision: {choices.get('precision')}"]
    for name, axis in AXES.items():
        value = choices.get(name)
        if name not in _SIZES and value is not None and value != axis.default:
            names.append(f"{name}: {value}")
    return tuple(names)


def _waits_for_data(row: Row) -> bool:
    """Whether neither the GPU nor its launches limit the speed."""
    waits = row.get("data_seconds_median") or 0.0
    return bool(waits > HOST_BOUND * row["step_seconds_median"])


def _model_name(model: Mapping[str, object]) -> str:
    """Equal for the same architecture and sizes, whatever it is trained on."""
    config = model.get("config") or {}
    assert isinstance(config, Mapping)
    names = ("hidden_size", "d_model", "embed_dim", "num_hidden_layers")
    sizes = [str(config[name]) for name in names if name in config]
    return "-".join([str(model.get("architecture") or model.get("name_or_path")), *sizes])
