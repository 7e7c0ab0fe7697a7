"""Forecast speeds on rows of unequal length against recorded trials and epochs.

No such row was among those that the efficiencies were learned from. What a new length costs is
learned from the trials that measured it, each model's from the other models alone. The last line
is what ``orchestrator/prediction/time/efficiencies.yaml`` holds: the median over all models.
"""

import itertools
import statistics
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.record import Outcome
from orchestrator.labels import label
from orchestrator.prediction.estimator import quiet_libraries
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.libraries import without_gpus
from orchestrator.prediction.model_group import ModelGroup, Shared
from orchestrator.prediction.time.step_time import StepTime, step_time
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.running.background_prediction import constants_of
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.recorded.configurations import (
    identity,
    measured_rows,
    planned_again,
    recorded_runs,
)

_SHOWN = ("micro_batch", "batching", "activations", "attention", "base")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """A configuration of unequal rows, on one card."""

    model: str
    name: str
    rows: Sequence[Row]
    time: StepTime
    """Of a step without what new lengths cost."""
    new_shapes: float
    """Of a step."""

    @property
    def kernel(self) -> str:
        return "cudnn" if self.rows[0]["attention_kernel"] == "cudnn" else "others"

    @property
    def prices(self) -> list[float]:
        """Seconds of a new length, in each trial that measured them; an epoch does not."""
        shares = [(row.get("new_shapes_share"), row["samples_per_second"]) for row in self.rows]
        samples = self.time.samples / self.new_shapes
        return [share * samples / speed for share, speed in shares if share]


def lines(options: Namespace) -> Iterator[str]:
    cases = [*itertools.chain(*map(_cases, options.runs))]
    yield "| configuration | rows | measured, samples/s | forecast | error |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    errors = []
    for own in cases:
        price = _price([one for one in cases if one.model != own.model], own.kernel)
        forecast = own.time.samples / (own.time.likely_seconds + price * own.new_shapes)
        speeds = [row["samples_per_second"] for row in own.rows]
        own_errors = [forecast / speed - 1 for speed in speeds]
        errors += map(abs, own_errors)
        yield (
            f"| {own.name} | {len(speeds)} | {statistics.median(speeds):.3g} | {forecast:.3g} "
            f"| {statistics.median(own_errors):+.0%} |"
        )
    nine = sorted(errors)[int(0.9 * len(errors))]
    yield f"{len(errors)} rows: median {statistics.median(errors):.0%}, nine of ten {nine:.0%}"
    learned = ", ".join(f"{own}: {_price(cases, own):.2g}" for own in ("cudnn", "others"))
    yield f"seconds_per_new_shape: {{{learned}}}"


def _price(cases: Iterable[_Case], kernel: str) -> float:
    """The median over models of the median of each."""
    by_model: dict[str, list[float]] = {}
    for own in cases:
        if own.kernel == kernel and (prices := own.prices):
            by_model.setdefault(own.model, []).extend(prices)
    return statistics.median(map(statistics.median, by_model.values())) if by_model else 0.0


def _cases(folder: Path) -> Iterator[_Case]:
    runs = list(recorded_runs(folder))
    measured: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for own in itertools.chain(*map(measured_rows, runs)):
        if own.row["outcome"] == Outcome.OK:
            measured.setdefault((own.group, identity(_as_given(own.row))), []).append(own.row)
    for group, trials in planned_again(runs):
        for spec in trials:
            rows = measured.get((group, identity(_as_given(spec.choices))), [])
            if not rows or spec.data.synthetic is None or spec.data.synthetic.lengths is None:
                continue
            card = load_gpu(constants_of(rows[0]["gpu_model"]))
            with quiet_libraries(), without_gpus():
                traces = ModelGroup([spec], FakeStep(spec, card), card, Shared())
                step = traces.step_work(spec)
            time = step_time(replace(step, new_shapes=0.0), card)
            if time is not None and step.new_shapes:
                name = f"{spec.model.architecture}, {card.name}, {label(spec.choices, _SHOWN)}"
                yield _Case(
                    model=str(spec.model.config.get("hidden_size", spec.model.architecture)),
                    name=name,
                    rows=rows,
                    time=time,
                    new_shapes=step.new_shapes,
                )


def _as_given(choices: Row) -> Row:
    """Plans name the length of the section data; rows of runs without this axis do not."""
    return {**choices, "sequence_length": "data"}
