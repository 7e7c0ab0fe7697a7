"""What techniques did to speed and to a trial's time in recorded runs: the priors of `answer`.

    python -m tests.benchmarks.technique_priors [RUN ...]            # print them
    python -m tests.benchmarks.technique_priors [RUN ...] --write    # and ship them

Two trials of one run that differ in one technique, and in nothing else, give one ratio. Ratios of
one model are averaged first, so that a model with a large grid counts as much as any other.
"""

import argparse
import itertools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jobs.record import Outcome
from jobs.steady_state import launch_bound_share
from jobs.techniques import AXES
from orchestrator.search.model.effects import technique_priors, unrecorded
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect
from orchestrator.storage.layout import TRIALS
from orchestrator.storage.tables.rows import Row, is_of_the_search
from orchestrator.storage.tables.table_reader import read_trials_file
from orchestrator.storage.tables.trial_table import TrialTable
from tests.benchmarks.recorded.runs import folders_below

RESULTS = Path(__file__).parents[2] / "docs" / "results"
FILE = Path(technique_priors.__file__).with_name("technique_priors.json")
BATCH = ("micro_batch", "accumulation")
LOADER = "dataloader"
LOSS = "loss"
MAX_HOST_SHARE = 0.05
"""Trials whose GPU waited for the host longer say nothing about the GPU's time."""
MAX_DATA_SHARE = 0.05
"""The same for the host's time to prepare a batch, relative to the time of a step."""
MAX_ERROR = 0.15
"""Trials whose speed is known less well say little."""
SAMPLE_DEVIATION = 0.2
"""Usual deviation of a technique's effect on the memory of a sample between models, as a
logarithm."""
LEAST_GROWTH = 0.03
"""Peaks that differ by a smaller share say little about the memory of a sample."""
NOTICED_SECONDS = 2.5
"""An overhead below this is noise of a process that starts."""
VARIANT_OF = {("compile", "inductor_regional_tuned"): "inductor_regional"}
"""(Axis, value) -> the value of the axis that it is a variant of. A variant is compared with that
value instead of the default, because the two differ by little on any model."""
VARIANT_DEVIATION = 0.05
"""Usual deviation of the effect of a variant, as a logarithm."""


Key = tuple[str, str]
"""Axis and value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two trials that differ in one technique."""

    axis: str
    before: str
    after: str
    log_time: float
    """Logarithm of the second one's seconds of a sample divided by the first one's."""
    log_memory: float
    """The same of their peaks of memory."""
    overhead_seconds: float | None
    """What the second took longer besides its steps; None where a compiler's cache decides that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a technique did on one model, compared with its axis's default (or ``VARIANT_OF``)."""

    log_time: float
    log_memory: float
    overhead_seconds: float | None


def model_of(run: Path) -> str:
    """What was trained in a run: its model and its data, as text."""
    config = _trials_of(run).run.config or {}
    return json.dumps([config.get("model"), config.get("data")], sort_keys=True)


def shape_of(run: Path) -> str:
    """The shape of what was trained in a run: runs of equal shape are left out together.

    Data, dropout and dtype may differ: what was learnt from the one is known of the other.
    """
    model = (_trials_of(run).run.config or {}).get("model") or {}
    config = model.get("config") or {}
    sizes = [config.get(name) for name in ("hidden_size", "d_model", "num_hidden_layers")]
    return json.dumps([model.get("architecture"), model.get("name_or_path"), *sizes])


@cache
def _trials_of(run: Path) -> TrialTable:
    return read_trials_file(run / TRIALS)


def pairs_of(runs: Iterable[Path]) -> Iterator[Pair]:
    """All pairs of ok trials of the parts of a run that differ in one technique."""
    counted: list[Row] = []
    axes: dict[str, str] = {}
    for run in runs:
        trials = _trials_of(run)
        axes |= trials.axes
        counted += [row for row in trials.rows if _counts(row)]
    techniques = [axis for axis in axes if axis in AXES and axis not in BATCH]
    for axis in techniques:
        others = [axes[name] for name in (*BATCH, *techniques) if name in axes and name != axis]
        by_others: dict[tuple[str, ...], list[Row]] = {}
        for row in counted:
            # Only the data loader's effect shows in steps that wait for their batch.
            if axis == LOADER or not _waits_for_data(row):
                key = tuple(str(row.get(column)) for column in others)
                by_others.setdefault(key, []).append(row)
        for group in by_others.values():
            yield from _pairs_among(axis, axes[axis], group)


def _counts(row: Row) -> bool:
    if row["outcome"] != Outcome.OK or not is_of_the_search(row):
        return False
    if not row.get("samples_per_second") or (row.get("samples_per_second_ci95") or 0.0) > MAX_ERROR:
        return False
    waited = max(row.get("host_bound_share") or 0.0, launch_bound_share(row))
    return waited <= MAX_HOST_SHARE


def _waits_for_data(row: Row) -> bool:
    data_seconds = row.get("data_seconds_median") or 0.0
    return bool(data_seconds > MAX_DATA_SHARE * (row.get("step_seconds_median") or math.inf))


def _pairs_among(axis: str, column: str, rows: Sequence[Row]) -> Iterator[Pair]:
    for before, after in itertools.combinations(rows, 2):
        if before[column] != after[column]:
            yield Pair(
                axis=axis,
                before=str(before[column]),
                after=str(after[column]),
                log_time=math.log(before["samples_per_second"] / after["samples_per_second"]),
                log_memory=math.log(after["device_peak_bytes"] / before["device_peak_bytes"]),
                overhead_seconds=_overhead_between(axis, before, after),
            )


def _overhead_between(axis: str, before: Row, after: Row) -> float | None:
    """What the second took longer. Of two compiled trials, the order decides which has a cache.

    A variant is compared with its reference all the same: its code is not in the other's cache. But
    the first of both also loads the compiler, a few seconds.
    """
    if axis != "compile" and before.get("compile") not in (None, AXES["compile"].default):
        return None
    return _overhead(after) - _overhead(before)


def _overhead(row: Row) -> float:
    """Seconds of a trial besides its counted steps."""
    known = row.get("overhead_seconds")
    if known is not None:
        return float(known)
    return float(row.get("slot_seconds") or 0.0)


def effects_of(pairs: Iterable[Pair]) -> dict[Key, Measured]:
    """(Axis, value) -> what it did, compared with its axis's default (or ``VARIANT_OF``)."""
    by_value: dict[Key, list[Pair]] = defaultdict(list)
    for pair in pairs:
        for name, other in ((pair.after, pair.before), (pair.before, pair.after)):
            if other == _compared_with(pair.axis, name):
                by_value[pair.axis, name].append(pair)
    return {key: _median_effect(linked, _compared_with(*key)) for key, linked in by_value.items()}


def _compared_with(axis: str, value: str) -> str:
    """The value of the axis that a value's effect is relative to."""
    return VARIANT_OF.get((axis, value), str(AXES[axis].default))


def _median_effect(pairs: Sequence[Pair], reference: str) -> Measured:
    """The median effect of pairs with a reference, each in the direction away from it."""
    signs = [1 if pair.before == reference else -1 for pair in pairs]
    signed = list(zip(signs, pairs, strict=True))
    overheads = [
        sign * pair.overhead_seconds for sign, pair in signed if pair.overhead_seconds is not None
    ]
    return Measured(
        log_time=statistics.median(sign * pair.log_time for sign, pair in signed),
        log_memory=statistics.median(sign * pair.log_memory for sign, pair in signed),
        overhead_seconds=statistics.median(overheads) if overheads else None,
    )


def sample_memories_of(runs: Iterable[Path]) -> dict[Key, float]:
    """(Axis, value) -> logarithm of the factor on the memory of a sample, from runs of one shape.

    The memory of a sample is the difference of the peaks at two micro-batches, one at least twice
    the other. Peaks hardly differ between hosts, so rows of different runs are compared.
    """
    curves: dict[tuple[str, frozenset[Key]], dict[int, float]] = defaultdict(dict)
    for run in runs:
        trials = _trials_of(run)
        model = model_of(run)
        for row in trials.rows:
            if row["outcome"] == Outcome.OK and is_of_the_search(row):
                peaks = curves[model, _techniques_of(row, trials.axes)]
                peaks[row[trials.axes["micro_batch"]]] = row["device_peak_bytes"]
    ratios: dict[Key, list[float]] = defaultdict(list)
    with_small_loss: dict[Key, list[float]] = defaultdict(list)
    for (model, techniques), peaks in curves.items():
        for axis, value in techniques:
            of_default = curves.get((model, techniques - {(axis, value)}), {})
            found = list(_ratios(of_default, peaks))
            ratios[axis, value] += found
            if any(other == LOSS for other, _ in techniques) and axis != LOSS:
                with_small_loss[axis, value] += found
    # The default loss needs memory for each sample that no other axis changes, so ratios with
    # another loss say more.
    said = {key: with_small_loss[key] or found for key, found in ratios.items()}
    return {key: statistics.median(found) for key, found in said.items() if found}


def _techniques_of(row: Row, axes: Mapping[str, str]) -> frozenset[Key]:
    """The choices of a row that are no default, without its micro-batch."""
    chosen = []
    for axis, column in axes.items():
        if axis in AXES and axis != "micro_batch" and row[column] not in (None, AXES[axis].default):
            chosen.append((axis, str(row[column])))
    return frozenset(chosen)


def _ratios(before: Mapping[int, float], after: Mapping[int, float]) -> Iterator[float]:
    """Logarithm of the ratio of what a sample adds, from the largest micro-batches of both.

    Small micro-batches are left out, because their peak can be that of the optimizer's step.
    """
    sizes = sorted(before.keys() & after.keys())
    smaller = [size for size in sizes if 2 * size <= sizes[-1]]
    if smaller:
        grown = [peaks[sizes[-1]] - peaks[smaller[-1]] for peaks in (before, after)]
        if min(grown[0] / before[sizes[-1]], grown[1] / after[sizes[-1]]) > LEAST_GROWTH:
            yield math.log(grown[1] / grown[0])


@cache
def _sample_memories_by_shape(runs: tuple[Path, ...]) -> list[tuple[str, Mapping[Key, float]]]:
    """Shapes, each with its (axis, value) -> log factor on the memory of a sample."""
    by_shape = defaultdict(list)
    for run in runs:
        by_shape[shape_of(run)].append(run)
    return [(shape, sample_memories_of(of_shape)) for shape, of_shape in by_shape.items()]


@cache
def _effects_by_model(runs: tuple[Path, ...]) -> list[tuple[str, Mapping[Key, Measured]]]:
    """The shape of each model, with its effects. Read once, because each grid leaves out another.

    Runs in folders below that of a run of the same model are parts of that run.
    """
    by_model: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for run in runs:
        model = model_of(run)
        if run.parent not in runs or model_of(run.parent) != model:
            parts = [other for other in runs if run in (other, other.parent)]
            parts = [part for part in parts if model_of(part) == model]
            by_model[shape_of(run), model] += pairs_of(parts)
    return [(shape, effects_of(pairs)) for (shape, _), pairs in by_model.items()]


def priors_from(runs: Sequence[Path], without: str = "") -> TechniquePriors:
    """The priors from runs; those of the shape ``without`` (``shape_of``) are left out."""
    collected = _by_technique(_effects_by_model(tuple(runs)), without)
    samples = _by_technique(_sample_memories_by_shape(tuple(runs)), without)
    # Its own default changes nothing.
    none = Effect(deviation=0.0, memory_deviation=0.0)
    effects: dict[str, dict[str, Effect]] = defaultdict(dict)
    for (axis, value), measured in sorted(collected.items()):
        if (axis, value) not in VARIANT_OF:
            usual = unrecorded.expectation(axis, value)
            effects[axis][value] = combined(measured, usual, samples[axis, value])
    for (axis, value), reference in VARIANT_OF.items():
        if (axis, value) in collected and reference in effects.get(axis, {}):
            effects[axis][value] = of_variant(effects[axis][reference], collected[axis, value])
    for axis, values in effects.items():
        values[str(AXES[axis].default)] = none
    return TechniquePriors(effects=effects)


def _by_technique(
    listed: Iterable[tuple[str, Mapping[Key, Any]]], without: str
) -> dict[Key, list[Any]]:
    """(Axis, value) -> what was found of it, without the models of a shape."""
    found = defaultdict(list)
    for shape, of_shape in listed:
        if shape != without:
            for key, value in of_shape.items():
                found[key].append(value)
    return found


def combined(
    measured: Sequence[Measured], usual: Effect, sample_memories: Sequence[float] = ()
) -> Effect:
    """One effect from those of several models, and the usual one."""
    log_time, deviation = _predicted(
        [own.log_time for own in measured], usual.log_time, usual.deviation
    )
    log_memory, memory_deviation = _predicted(
        [own.log_memory for own in measured], usual.log_memory, usual.memory_deviation
    )
    log_sample_memory, sample_deviation = None, 0.0
    if sample_memories:
        mean = statistics.fmean(sample_memories)
        log_sample_memory, sample_deviation = _predicted(sample_memories, mean, SAMPLE_DEVIATION)
    known = [own.overhead_seconds for own in measured if own.overhead_seconds is not None]
    overhead = statistics.median(known) if known else usual.overhead_seconds
    return Effect(
        log_time=log_time,
        deviation=deviation,
        log_memory=log_memory,
        memory_deviation=memory_deviation,
        log_sample_memory=log_sample_memory,
        sample_memory_deviation=sample_deviation,
        overhead_seconds=overhead if abs(overhead) >= NOTICED_SECONDS else 0.0,
        models=len(measured),
    )


def of_variant(reference: Effect, measured: Sequence[Measured]) -> Effect:
    """The effect of a variant: that of its reference, and what the variant changes."""
    change = combined(
        measured, Effect(deviation=VARIANT_DEVIATION, memory_deviation=VARIANT_DEVIATION)
    )
    return replace(
        reference,
        log_time=reference.log_time + change.log_time,
        deviation=math.hypot(reference.deviation, change.deviation),
        log_memory=reference.log_memory + change.log_memory,
        memory_deviation=math.hypot(reference.memory_deviation, change.memory_deviation),
        overhead_seconds=reference.overhead_seconds + max(0.0, change.overhead_seconds),
        models=change.models,
    )


def _predicted(
    values: Sequence[float], usual: float, usual_deviation: float
) -> tuple[float, float]:
    """Mean and deviation to expect of one more model. What is usual counts like one model."""
    figures = np.array([*values, usual])
    # Few models: their own spread is uncertain, so the usual spread is added.
    count = len(figures)
    spread = float(((figures - figures.mean()) ** 2).sum())
    variance = (usual_deviation**2 + spread) / count
    deviation = math.sqrt(variance * (1 + 1 / count))
    return float(figures.mean()), max(0.5 * usual_deviation, deviation)


def table_of(priors: TechniquePriors) -> Iterator[str]:
    yield (
        f"{'technique':44} {'time':>7} {'spread':>7} {'memory':>7} {'spread':>7} {'overhead':>9}"
        f" {'models':>6}"
    )
    for axis, values in priors.effects.items():
        for value, effect in values.items():
            yield (
                f"{axis + ': ' + value:44} {math.exp(effect.log_time):7.2f}"
                f" {math.exp(effect.deviation):7.2f} {math.exp(effect.log_memory):7.2f}"
                f" {math.exp(effect.memory_deviation):7.2f} {effect.overhead_seconds:7.0f} s"
                f" {effect.models:6}"
            )


def as_json(priors: TechniquePriors) -> dict[str, dict[str, dict[str, float]]]:
    """Axis -> value -> the figures of its effect, as ``read_priors`` reads them."""
    document = {}
    for axis, effects in priors.effects.items():
        document[axis] = {value: _figures(effect) for value, effect in effects.items()}
    return document


def _figures(effect: Effect) -> dict[str, float]:
    digits = {"overhead_seconds": 2}
    figures = {name: figure for name, figure in asdict(effect).items() if figure is not None}
    return {name: round(figure, digits.get(name, 4)) for name, figure in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.technique_priors",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("runs", type=Path, nargs="*", help="default: all of docs/results")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args()
    priors = priors_from(options.runs or folders_below([RESULTS]))
    for line in table_of(priors):
        print(line)
    if options.write:
        FILE.write_text(json.dumps(as_json(priors), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
