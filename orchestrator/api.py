"""A run as a person asks of it: its rows as points, read once; the object that ``orchestrator.load`` returns."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.budgets import baseline_training
from orchestrator.analysis.cap_checks import checks
from orchestrator.analysis.frame.categorical import Coded
from orchestrator.analysis.frame.points import Points, memory_column, of_the_search, points
from orchestrator.analysis.frame.rows import coded, views_of, where
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.pareto import Point, Row, fast, frontier, lean
from orchestrator.analysis.recommendation import Recommendation, Wish, recommend
from orchestrator.analysis.summary import label
from orchestrator.analysis.tie_breaks import pairings
from orchestrator.storage.location import Location, Uri, location
from orchestrator.storage.run_metadata import Run
from orchestrator.units import count, memory, number

if TYPE_CHECKING:
    import pyarrow

    from jobs.anatomy_record import Anatomy
    from orchestrator.analysis.accumulation import Candidate
    from orchestrator.analysis.comparison import Comparison


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """A run's rows, of every environment it was measured in. The questions are answered for one environment."""

    folder: Path
    run: Run
    table: pyarrow.Table
    """One row a trial; every column's unit and meaning are in its metadata."""
    rows: Sequence[Row]
    """The search's own trials."""
    follow_ups: tuple[Row, ...]
    """Trials about its result."""
    axes: Mapping[str, str]
    """Axis -> its column."""
    varying: frozenset[str]
    """The axes on which the trials differ."""
    environments: Mapping[str, Mapping[str, Any]]
    """Environment's id -> GPU model, driver and versions."""
    points: Points
    """The ok rows, repeats combined."""
    environment_id: str
    """The environment that most points were measured in; "" where nothing was measured."""
    training: str
    """The baseline's kind of training, or the nearest measured; "" is the plain one."""

    @property
    def hardware(self) -> str:
        """The accelerator's name, or the processor's where there is none."""
        return self.hardware_of(self.environment_id)

    def hardware_of(self, environment_id: str) -> str:
        """The same of one environment."""
        where = self.environments.get(environment_id, {})
        return str(where.get("gpu_model") or where.get("cpu_model") or "unknown hardware")

    @property
    def device_bytes(self) -> float:
        """The accelerator's whole memory; infinite where it is not known."""
        return self.environments.get(self.environment_id, {}).get("gpu_memory_bytes") or math.inf

    @property
    def memory_column(self) -> str:
        """What the points' memory is: the name of its column."""
        return self.memory_column_of(self.environment_id)

    def memory_column_of(self, environment_id: str) -> str:
        """The same of one environment's trials."""
        return memory_column(
            where(self.rows, coded(self.rows, "environment_id").equal(environment_id))
        )

    def anatomies(self) -> Mapping[str, Anatomy]:
        """Trial -> where its memory and time went, of those that were taken apart."""
        from orchestrator.storage.tables import parquet as table

        return table.anatomies_of(self.folder)

    def losses(self) -> Mapping[str, Sequence[float]]:
        """Trial -> its losses, step by step, warm-up included."""
        from orchestrator.storage.tables import parquet as table

        return table.losses_of(self.folder)

    def own(self) -> Points:
        """The points that may be ranked together."""
        return self.points.where(self.points.environments.equal(self.environment_id))

    def follow_ups_here(self) -> tuple[Row, ...]:
        """The follow-ups of the environment that the questions are answered for."""
        return tuple(row for row in self.follow_ups if row["environment_id"] == self.environment_id)

    def label(self, point: Point) -> str:
        """A configuration in a few words: the axes on which the run's trials differ, and it from its row."""
        moved = [
            axis
            for axis in self.axes
            if axis in self.varying or point.choices[axis] != point.row[self.axes[axis]]
        ]
        return label(point.choices, moved or list(self.axes))

    def frontier(
        self,
        objectives: Sequence[str] = ("samples_per_second",),
        *,
        price_per_hour: float | None = None,
        any_training: bool = False,
    ) -> tuple[Point, ...]:
        """The Pareto front of memory and the named objectives, within the baseline's kind of training.

        Raises KeyError for a name that is not in ``OBJECTIVES``.
        """
        chosen = [OBJECTIVES[name] for name in objectives]
        axes = [lean, *(lambda point, o=o: o.score(point, price_per_hour) for o in chosen)]
        training = self.training
        return frontier((p for p in self.own() if any_training or p.training == training), axes)

    def recommend(
        self,
        *,
        memory_bytes: int | None = None,
        effective_batch: int | None = None,
        any_training: bool = False,
        exact: bool = False,
        objective: str = "samples_per_second",
        price_per_hour: float | None = None,
    ) -> Recommendation:
        """The best configuration under the constraints. Raises KeyError for an unknown objective."""
        wish = Wish(
            memory_bytes=memory_bytes,
            effective_batch=effective_batch,
            any_training=any_training,
            exact=exact,
            objective=OBJECTIVES[objective],
            price_per_hour=price_per_hour,
        )
        from orchestrator.reporting.recommendation import render

        again = self.follow_ups_here()
        answer = recommend(self.own(), wish, self.training, checks(again), pairings(again))
        return replace(answer, text=render(self, answer))

    def export(
        self, candidate: Candidate, folder: Path | str, *, epochs: float = 1
    ) -> tuple[Path, ...]:
        """Write the files to train ``candidate`` with; returns them. Raises NotExportableError."""
        from orchestrator.export import export_candidate

        return export_candidate(self, candidate, Path(folder), epochs=epochs)

    def compare(self, after: MeasuredRun) -> Comparison:
        """What became of this run's configurations in another one."""
        from orchestrator.analysis.comparison import compare
        from orchestrator.reporting.comparison import render

        found = compare(self, after)
        return replace(found, text=render(self, after, found))

    def __repr__(self) -> str:
        """A line: the fields are too large to look at."""
        return f"<{type(self).__name__} {self.folder}: {count(len(self.rows), 'trial')}, {self.hardware}>"

    def _repr_html_(self) -> str:
        """The frontier as a table, for a notebook."""
        head = "".join(f"<th>{name}</th>" for name in ("configuration", "memory", "samples/s"))
        body = "".join(
            f"<tr><td>{html.escape(self.label(p))}</td><td>{memory(p.memory_bytes)}</td><td>{number(fast(p))}</td></tr>"
            for p in self.frontier()
        )
        title = html.escape(
            f"{self.run.name or self.folder.name}: {len(self.rows)} trials, {self.hardware}"
        )
        return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def load(run_folder: Location | str) -> MeasuredRun:
    """A run from its folder or URI, finished or not.

    Raises FileNotFoundError when there are neither records nor a table, ValueError or OSError on a URI that makes no
    sense or cannot be read.
    """
    from orchestrator.storage.tables import parquet as table

    folder = _here(run_folder)
    trials = table.load(folder)
    run, every, axes = table.run_of(trials), views_of(trials), table.axes_of(trials)
    own = of_the_search(every)
    rows = where(every, own)
    measured = points(rows, axes)
    environment_id = _largest(measured.environments)
    here = measured.where(measured.environments.equal(environment_id))
    return MeasuredRun(
        folder=folder,
        run=run,
        table=trials,
        rows=rows,
        follow_ups=tuple(where(every, ~own)),
        axes=axes,
        varying=frozenset(
            axis for axis, column in axes.items() if len(coded(rows, column).met()) > 1
        ),
        environments=table.environments_of(trials),
        points=measured,
        environment_id=environment_id,
        training=baseline_training(here.kinds(), run.baseline),
    )


def _largest(column: Coded) -> str:
    """The value that most points have, the first of equals; "" where there is none."""
    met = column.met()
    return str(max(met, key=lambda value: int(column.equal(value).sum()))) if met else ""


def _here(run_folder: Location | str) -> Path:
    place = run_folder if isinstance(run_folder, Uri) else location(run_folder)
    if isinstance(place, Path):
        return place
    from orchestrator.storage.object_store import fetched

    return fetched(place)
