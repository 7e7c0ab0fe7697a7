"""A run summed up once, from the rows of its table, for every page to render."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jobs.anatomy_record import Anatomy
from jobs.record import Outcome
from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.analysis import warnings as doubts
from orchestrator.analysis.budgets import (
    Verdict,
    baseline_choices,
    baseline_training,
    best_in_budgets,
    fastest,
)
from orchestrator.analysis.cap_checks import Check, checks
from orchestrator.analysis.effects import Effect, Stage, cumulative, effects
from orchestrator.analysis.frame.categorical import alike, first_of_each
from orchestrator.analysis.frame.points import (
    Points,
    frontiers,
    memory_column,
    of_the_search,
    points,
)
from orchestrator.analysis.frame.rows import coded, figures, given, where
from orchestrator.analysis.hf_guide import GuideRow, guide_rows
from orchestrator.analysis.pareto import AND, Point, Row, training_of
from orchestrator.analysis.tie_breaks import pairings
from orchestrator.analysis.warnings import Doubt
from orchestrator.storage.run_metadata import LOGS, Run

MEMORY_WORDS = {
    "device_used_bytes": "peak device memory (NVML, with the CUDA context)",
    "peak_allocated_bytes": "peak bytes held by tensors (without context and fragmentation)",
    "host_peak_resident_bytes": "peak resident memory of the process",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cohort:
    """The points of one environment: the only ones ever ranked together."""

    environment_id: str
    environment: Mapping[str, Any]
    memory_column: str
    points: Points
    training: str
    """The kind of training that is ranked: the baseline's, or where none of it ended ok, the one nearest to it."""
    trains_as_baseline: bool
    """Whether that is the baseline's."""
    fronts: Mapping[str, tuple[Point, ...]]
    """Kind of training -> its frontier, the effective batch free."""
    across: tuple[Point, ...]
    """The frontier across all trainings."""
    checks: tuple[Check, ...]
    """What was run again under caps of budgets."""
    verdicts: tuple[Verdict, ...]
    baseline: Mapping[str, Choice]
    effects: tuple[Effect, ...]
    stages: tuple[Stage, ...]
    guide: tuple[GuideRow, ...]
    """The points measured as the guide measures."""

    @property
    def front(self) -> tuple[Point, ...]:
        """The frontier of the training that is ranked."""
        return self.fronts[self.training]

    def training_name(self, training: str) -> str:
        """A kind of training in words."""
        if training == self.training and self.trains_as_baseline:
            return "as the baseline"
        return training or "exact"

    @property
    def hardware(self) -> str:
        """The accelerator's name, or the processor's where there is none."""
        return str(
            self.environment.get("gpu_model")
            or self.environment.get("cpu_model")
            or "unknown hardware"
        )

    @property
    def device_bytes(self) -> float:
        """The accelerator's whole memory; infinite where it is not known."""
        return self.environment.get("gpu_memory_bytes") or math.inf

    @property
    def memory_words(self) -> str:
        """What this cohort's memory figures are, in words."""
        return MEMORY_WORDS[self.memory_column]

    @property
    def picks(self) -> tuple[Point, ...]:
        """The best in each budget, and what another training would buy."""
        return tuple(
            p for verdict in self.verdicts for p in (verdict.best, verdict.other) if p is not None
        )

    @property
    def best(self) -> Point | None:
        """The fastest point of the training that is ranked."""
        return fastest(self.front)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Trials that ended alike, other than ok."""

    outcome: Outcome
    reason: str
    rule: str
    phase: str
    labels: tuple[str, ...]
    """The configurations, named."""
    logs: tuple[str, ...]
    """Of each the file of what it printed, in the run folder; empty where there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Everything a page shows of a run."""

    run: Run
    axes: tuple[str, ...]
    """The axes on which the trials really differ; all of them when there is a single trial."""
    rows: Sequence[Row]
    """The search's own trials."""
    follow_ups: tuple[Row, ...]
    """Trials about its result: they count in no figure but their own."""
    counts: Mapping[Outcome, int]
    cohorts: tuple[Cohort, ...]
    """Most points first."""
    failures: tuple[Failure, ...]
    """Most frequent first."""
    doubts: tuple[Doubt, ...]
    """What trials warned of, most frequent first."""
    busy_seconds: float
    """The search's trials' wall time added up: what it cost its slots."""
    follow_up_seconds: float
    """The same of the follow-ups."""
    anatomies: Mapping[str, Anatomy] = field(default_factory=dict)
    """First trial of a point -> where its memory and time went; of the points that pages take apart."""
    folder: Path | None = None
    files: tuple[Path, ...] = ()

    @property
    def best(self) -> Point | None:
        """The fastest point of the largest cohort."""
        return self.cohorts[0].best if self.cohorts else None

    def anatomy(self, point: Point) -> Anatomy | None:
        """Where a point's memory and time went; None where that is not known."""
        return self.anatomies.get(point.trial_ids[0])

    def label(self, point: Point) -> str:
        """A point's configuration in a few words."""
        return label(point.choices, self.axes)


def summarize(
    rows: Sequence[Row],
    axes: Mapping[str, str],
    run: Run,
    environments: Mapping[str, Mapping[str, Any]],
) -> Summary:
    """Sum up a table's rows; ``axes`` maps each axis to its column, ``environments`` an id to its versions."""
    own = of_the_search(rows)
    rows, follow_ups = where(rows, own), tuple(where(rows, ~own))
    met = {axis: coded(rows, column).met() for axis, column in axes.items()}
    varying = tuple(axis for axis in axes if len(met[axis]) > 1) or tuple(axes)
    measured, places = points(rows, axes), coded(rows, "environment_id")
    training = baseline_training(_kinds(rows, axes), run.baseline)
    cohorts = [
        _cohort(
            environments.get(environment_id, {}),
            measured.where(measured.environments.equal(environment_id)),
            memory_column(where(rows, places.equal(environment_id))),
            [row for row in follow_ups if row["environment_id"] == environment_id],
            run,
            training,
        )
        for environment_id in measured.environments.met()
    ]
    outcomes = coded(rows, "outcome")
    return Summary(
        run=run,
        axes=varying,
        rows=rows,
        follow_ups=follow_ups,
        counts={o: n for o in Outcome if (n := int(outcomes.equal(o).sum()))},
        cohorts=tuple(sorted(cohorts, key=lambda cohort: -len(cohort.points))),
        failures=_failures(where(rows, ~outcomes.equal(Outcome.OK)), axes, varying),
        doubts=doubts.gather(
            (text, _row_label(row, axes, varying))
            for row in where(rows, given(rows, "warnings"))
            for text in row["warnings"]
        ),
        busy_seconds=_total(rows),
        follow_up_seconds=_total(follow_ups),
    )


def _total(rows: Sequence[Row]) -> float:
    seconds = figures(rows, "wall_seconds")
    return float(sum(seconds[~np.isnan(seconds)].tolist()))


def table_of_fronts(summary: Summary) -> list[tuple[Point, bool, bool]]:
    """Every point that none of its equivalence beats; whether none of its training does, and none of all."""
    own = {
        id(point)
        for cohort in summary.cohorts
        for front in cohort.fronts.values()
        for point in front
    }
    across = {id(point) for cohort in summary.cohorts for point in cohort.across}
    return [
        (point, id(point) in own, id(point) in across)
        for cohort in summary.cohorts
        for front in frontiers(cohort.points, within=lambda points: points.equivalences).values()
        for point in front
    ]


def _kinds(rows: Sequence[Row], axes: Mapping[str, str]) -> Iterator[tuple[dict[str, Choice], str]]:
    """The choices on the axes that set kinds of training apart, and the kind: each such pair once."""
    equivalences = coded(rows, "equivalence")
    parts = {part.partition("=")[0] for kind in equivalences.values for part in kind.split(AND)}
    apart = {axis: coded(rows, column) for axis, column in axes.items() if axis in parts}
    for place in first_of_each(alike([equivalences, *apart.values()], len(rows))).tolist():
        chosen = {axis: column.values[column.at[place]] for axis, column in apart.items()}
        yield chosen, training_of(equivalences.values[equivalences.at[place]])


def _cohort(
    environment: Mapping[str, Any],
    own: Points,
    memory_column: str,
    follow_ups: Sequence[Row],
    run: Run,
    training: str,
) -> Cohort:
    baseline, environment_id = baseline_choices(own, run.baseline), own[0].environment_id
    seen = checks(follow_ups)
    fronts = {kind: front for (_, kind), front in frontiers(own).items()}
    ranked = training if training in fronts else baseline_training(own.kinds(), run.baseline)
    ((_, across),) = frontiers(own, within=lambda points: points.environments).items()
    return Cohort(
        environment_id=environment_id,
        environment=environment,
        memory_column=memory_column,
        points=own,
        training=ranked,
        trains_as_baseline=ranked == training,
        fronts=fronts,
        across=across,
        checks=seen,
        verdicts=best_in_budgets(own, run.budgets, ranked, seen, pairings(follow_ups)),
        baseline=baseline,
        effects=effects(own, baseline),
        stages=cumulative(own, baseline),
        guide=guide_rows(run, own),
    )


def _failures(
    rows: Iterable[Row], axes: Mapping[str, str], varying: Sequence[str]
) -> tuple[Failure, ...]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (row["outcome"], row["reason"] or "", row["rule"] or "", row["phase"] or "")
        groups.setdefault(key, []).append(row)
    found = [
        Failure(
            outcome=Outcome(outcome),
            reason=reason,
            rule=rule,
            phase=phase,
            labels=tuple(_row_label(row, axes, varying) for row in own),
            logs=tuple(log_file(row) for row in own),
        )
        for (outcome, reason, rule, phase), own in groups.items()
    ]
    return tuple(sorted(found, key=lambda failure: -len(failure.labels)))


def log_file(row: Row) -> str:
    """The file of what a trial printed, for a link: only one of a run folder's own, whatever the table says."""
    named = str(row.get("log_file") or "")
    return named if re.fullmatch(rf"{LOGS}/\w+\.txt", named) else ""


def _row_label(row: Row, axes: Mapping[str, str], varying: Sequence[str]) -> str:
    return label({axis: row[axes[axis]] for axis in varying}, varying)


def label(choices: Mapping[str, Choice], axes: Sequence[str]) -> str:
    """A configuration in a few words: ``64×2 · bf16 · adafactor · checkpoint``; what is off is left unsaid."""
    words = []
    if "micro_batch" in axes or "accumulation" in axes:
        split = [
            choices.get("micro_batch"),
            choices.get("accumulation") if "accumulation" in axes else None,
        ]
        words.append(f"batch {'×'.join(str(size) for size in split if size is not None)}")
    for axis in axes:
        value = choices[axis]
        if axis in ("micro_batch", "accumulation"):
            continue
        if axis not in AXES:
            words.append(f"{axis}={value}")
        elif axis in ("precision", "optimizer") or value != AXES[axis].default:
            words.append(str(value) if isinstance(value, str) else f"{axis} {value}")
    return " · ".join(words) or "default"
