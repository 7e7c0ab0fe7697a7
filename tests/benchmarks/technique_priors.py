"""What techniques did to speed and to a trial's time in recorded runs: the priors of `answer`.

    python -m tests.benchmarks.technique_priors [RUN ...]            # print them
    python -m tests.benchmarks.technique_priors [RUN ...] --write    # and ship them

Two trials of one run that differ in one technique, and in nothing else, give one ratio. Ratios of
one model are averaged first, so that a model with a large grid counts as much as any other.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.search.answer import technique_priors
from orchestrator.search.answer.technique_priors import Effect, TechniquePriors
from orchestrator.storage.run_reader import read_run_folder
from orchestrator.storage.tables.rows import Row, is_of_the_search

RESULTS = Path(__file__).parents[2] / "docs" / "results"
FILE = Path(technique_priors.__file__).with_name("technique_priors.json")
BATCH = ("micro_batch", "accumulation")
BETWEEN_MODELS = 0.25
"""Deviation of an effect between models, as a logarithm, that is assumed of one model."""
MAX_HOST_SHARE = 0.05
"""Trials whose GPU waited for the host longer say nothing about the GPU's time."""
NOTICED_SECONDS = 5.0
"""An overhead below this is noise of a process that starts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two trials that differ in one technique."""

    axis: str
    before: str
    after: str
    log_time: float
    """Logarithm of the second one's seconds of a sample divided by the first one's."""
    overhead_seconds: float
    """What the second took longer besides its steps."""


def runs_in(folder: Path) -> list[Path]:
    """The folders below one that hold a table of trials."""
    return sorted(path.parent for path in folder.rglob("trials.parquet"))


def model_of(run: Path) -> str:
    """What was trained in a run: its model and its data, as text."""
    config = read_run_folder(run).trials.run.config or {}
    return json.dumps([config.get("model"), config.get("data")], sort_keys=True)


def pairs_of(run: Path) -> Iterator[Pair]:
    """All pairs of ok trials of a run that differ in one technique."""
    trials = read_run_folder(run).trials
    techniques = [axis for axis in trials.axes if axis in AXES and axis not in BATCH]
    by_others: dict[tuple[str, ...], list[Row]] = {}
    rows = [row for row in trials.rows if _counts(row)]
    for axis in techniques:
        by_others.clear()
        others = [trials.axes[name] for name in (*BATCH, *techniques) if name != axis]
        for row in rows:
            key = tuple(str(row.get(column)) for column in others)
            by_others.setdefault(key, []).append(row)
        for group in by_others.values():
            yield from _pairs_among(axis, trials.axes[axis], group)


def _counts(row: Row) -> bool:
    if row["outcome"] != Outcome.OK or not is_of_the_search(row):
        return False
    is_measured = bool(row.get("samples_per_second"))
    return is_measured and (row.get("host_bound_share") or 0.0) <= MAX_HOST_SHARE


def _pairs_among(axis: str, column: str, rows: Sequence[Row]) -> Iterator[Pair]:
    for number, before in enumerate(rows):
        for after in rows[number + 1 :]:
            if before[column] != after[column]:
                yield Pair(
                    axis=axis,
                    before=str(before[column]),
                    after=str(after[column]),
                    log_time=math.log(before["samples_per_second"] / after["samples_per_second"]),
                    overhead_seconds=_overhead(after) - _overhead(before),
                )


def _overhead(row: Row) -> float:
    """Seconds of a trial besides its counted steps."""
    known = row.get("overhead_seconds")
    if known is not None:
        return float(known)
    return float(row.get("slot_seconds") or 0.0)


def effects_of(pairs: Iterable[Pair]) -> dict[tuple[str, str], tuple[float, float]]:
    """(Axis, value) -> logarithm of its factor and its overhead, against its axis's default.

    Least squares over all pairs of an axis, of which not every one has the default.
    """
    by_axis: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_axis.setdefault(pair.axis, []).append(pair)
    effects = {}
    for axis, listed in by_axis.items():
        default = str(AXES[axis].default)
        names = sorted({pair.before for pair in listed} | {pair.after for pair in listed})
        if default not in names:
            continue
        for name in names:
            linked = [pair for pair in listed if {pair.before, pair.after} == {default, name}]
            if linked and name != default:
                effects[axis, name] = _mean_effect(linked, default)
    return effects


def _mean_effect(pairs: Sequence[Pair], default: str) -> tuple[float, float]:
    """The median effect of pairs with the default, each in the direction away from it."""
    times = []
    overheads = []
    for pair in pairs:
        sign = 1 if pair.before == default else -1
        times.append(sign * pair.log_time)
        overheads.append(sign * pair.overhead_seconds)
    return statistics.median(times), statistics.median(overheads)


def priors_from(runs: Sequence[Path], without: str = "") -> TechniquePriors:
    """The priors from runs; ``without`` is a model (``model_of``) whose runs are left out."""
    by_model: dict[str, list[Pair]] = {}
    for run in runs:
        model = model_of(run)
        if model != without:
            by_model.setdefault(model, []).extend(pairs_of(run))
    collected: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for pairs in by_model.values():
        for key, effect in effects_of(pairs).items():
            collected.setdefault(key, []).append(effect)
    effects: dict[str, dict[str, Effect]] = {}
    for (axis, value), measured in sorted(collected.items()):
        effects.setdefault(axis, {})[value] = _combined(measured)
    # Its own default changes nothing.
    for axis, values in effects.items():
        values[str(AXES[axis].default)] = Effect(deviation=0.0, models=len(by_model))
    return TechniquePriors(effects=effects)


def _combined(measured: Sequence[tuple[float, float]]) -> Effect:
    """One effect from those of several models."""
    times = np.array([time for time, _ in measured])
    overhead = statistics.median(seconds for _, seconds in measured)
    if abs(overhead) < NOTICED_SECONDS:
        overhead = 0.0
    # Few models: their own spread is uncertain, so the usual spread counts like one model more.
    count = len(times)
    variance = (BETWEEN_MODELS**2 + float(((times - times.mean()) ** 2).sum())) / count
    deviation = math.sqrt(variance * (1 + 1 / count))
    return Effect(
        log_time=float(times.mean()),
        deviation=max(0.5 * BETWEEN_MODELS, deviation),
        overhead_seconds=overhead,
        models=count,
    )


def table_of(priors: TechniquePriors) -> Iterator[str]:
    """Lines: every effect."""
    yield f"{'technique':44} {'time':>7} {'spread':>7} {'overhead':>9} {'models':>6}"
    for axis, values in priors.effects.items():
        for value, effect in values.items():
            yield (
                f"{axis + ': ' + value:44} {math.exp(effect.log_time):7.2f}"
                f" {math.exp(effect.deviation):7.2f} {effect.overhead_seconds:7.0f} s"
                f" {effect.models:6}"
            )


def main() -> None:
    """Print the priors, and write them if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.technique_priors",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("runs", type=Path, nargs="*", help="default: all of docs/results")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args()
    priors = priors_from(options.runs or runs_in(RESULTS))
    for line in table_of(priors):
        print(line)
    if options.write:
        FILE.write_text(json.dumps(priors.to_json(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
