"""Rows as points: all configurations of a table as columns, each an object when it is asked for."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np

from jobs.spec import Choice
from orchestrator.analysis.frame.categorical import (
    Coded,
    Figures,
    Mask,
    Places,
    alike,
    code,
    first_of_each,
)
from orchestrator.analysis.frame.rows import coded, figures, where
from orchestrator.analysis.pareto import AND, MEMORY_COLUMNS, Point, Row, training_of


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Points(Sequence[Point]):
    """Points in order; a point is the same object whenever it is asked for."""

    memory_bytes: Figures
    samples_per_second: Figures
    errors: Figures
    """``samples_per_second_error``."""
    environments: Coded
    equivalences: Coded
    trainings: Coded
    batches: Coded
    """Effective batches."""
    choices: Mapping[str, Coded]
    _make: Callable[[int], Point] = field(repr=False)
    _places: Places
    """Which of all the points that were made of the same rows."""

    @classmethod
    def of(cls, points: Sequence[Point]) -> Points:
        """Points that are objects already."""
        if isinstance(points, Points):
            return points
        own = list(points)
        equivalences = code(point.equivalence for point in own)
        errors = [point.samples_per_second_error for point in own]
        return cls(
            memory_bytes=np.array([point.memory_bytes for point in own], np.float64),
            samples_per_second=np.array([point.samples_per_second for point in own], np.float64),
            errors=np.array(errors, np.float64),
            environments=code(point.environment_id for point in own),
            equivalences=equivalences,
            trainings=_trainings(equivalences),
            batches=code(point.row.get("effective_batch") for point in own),
            choices={
                axis: code(point.choices[axis] for point in own)
                for axis in (own[0].choices if own else ())
            },
            _make=own.__getitem__,
            _places=np.arange(len(own)),
        )

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Point]:
        return map(self._make, self._places.tolist())

    @overload
    def __getitem__(self, place: int) -> Point: ...

    @overload
    def __getitem__(self, place: slice) -> Points: ...

    def __getitem__(self, place: int | slice) -> Point | Points:
        if isinstance(place, slice):
            return self.where(np.arange(len(self))[place])
        return self._make(int(self._places[place]))

    def kinds(self) -> Iterator[tuple[dict[str, Choice], str]]:
        """The choices on the axes that set kinds of training apart, and the kind: each such pair once."""
        parts = {
            part.partition("=")[0] for kind in self.trainings.values for part in kind.split(AND)
        }
        apart = {axis: column for axis, column in self.choices.items() if axis in parts}
        for place in first_of_each(alike([self.trainings, *apart.values()], len(self))).tolist():
            chosen = {axis: column.values[column.at[place]] for axis, column in apart.items()}
            yield chosen, self.trainings.values[self.trainings.at[place]]

    def where(self, which: Mask | Places) -> Points:
        """Some of the points, in the order of ``which``."""
        return Points(
            memory_bytes=self.memory_bytes[which],
            samples_per_second=self.samples_per_second[which],
            errors=self.errors[which],
            environments=self.environments.take(which),
            equivalences=self.equivalences.take(which),
            trainings=self.trainings.take(which),
            batches=self.batches.take(which),
            choices={axis: column.take(which) for axis, column in self.choices.items()},
            _make=self._make,
            _places=self._places[which],
        )


def points(rows: Sequence[Row], axes: Mapping[str, str]) -> Points:
    """The ok rows of the search's own trials as points, environment by environment, in order of first appearance.

    ``axes`` maps an axis to its column. Rows without a memory or a speed above zero are left out.
    """
    rows = where(rows, coded(rows, "outcome").equal("ok") & of_the_search(rows))
    memory, speed = _memory(rows), figures(rows, "samples_per_second")
    known = (memory > 0) & (speed > 0) & np.isfinite(speed)
    rows, memory, speed = where(rows, known), memory[known], speed[known]
    environments, equivalences, batches = (
        coded(rows, name) for name in ("environment_id", "equivalence", "effective_batch")
    )
    choices = {axis: coded(rows, column) for axis, column in axes.items()}
    groups = _Groups.of(
        alike([environments, equivalences, batches, *choices.values()], len(rows)), environments.at
    )
    combined = groups.combined(memory, max), groups.combined(speed, statistics.median)
    first = groups.first
    return Points(
        memory_bytes=combined[0],
        samples_per_second=combined[1],
        errors=groups.combined(figures(rows, "samples_per_second_error"), np.fmax.reduce),
        environments=environments.take(first),
        equivalences=equivalences.take(first),
        trainings=_trainings(equivalences).take(first),
        batches=batches.take(first),
        choices={axis: column.take(first) for axis, column in choices.items()},
        _make=functools.cache(functools.partial(_point, rows, groups, combined, axes)),
        _places=np.arange(len(first)),
    )


def of_the_search(rows: Sequence[Row]) -> Mask:
    """Which rows are the search's own, not follow-ups."""
    purposes = coded(rows, "purpose")
    return purposes.equal(None) | purposes.equal("search")


def memory_column(rows: Sequence[Row]) -> str:
    """The first of ``MEMORY_COLUMNS`` that every ok row measured; rows of an environment all go by one."""
    ok = where(rows, coded(rows, "outcome").equal("ok"))
    complete = (name for name in MEMORY_COLUMNS if not np.isnan(figures(ok, name)).any())
    return next(complete, "peak_allocated_bytes")


def _memory(rows: Sequence[Row]) -> Figures:
    """Of each row the memory that its environment goes by, bytes."""
    environments, found = coded(rows, "environment_id"), np.empty(len(rows))
    for environment_id in environments.met():
        own = environments.equal(environment_id)
        here = where(rows, own)
        found[own] = figures(here, memory_column(here))
    return found


def _trainings(equivalences: Coded) -> Coded:
    kinds = code(training_of(equivalence) for equivalence in equivalences.values)
    return Coded(values=kinds.values, at=kinds.at[equivalences.at])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Groups:
    """Rows that are repeats of each other."""

    rows: Places
    """Group by group."""
    starts: Places
    """Of each group its first place among ``rows``; the end of all after the last."""

    @classmethod
    def of(cls, numbers: Places, blocks: Places) -> _Groups:
        """Of equal numbers; groups of a lower block first, then as they are first met."""
        _, first, group = np.unique(numbers, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.lexsort((first, blocks[first]))] = np.arange(len(first))
        place = rank[group]
        rows = np.argsort(place, kind="stable")
        return cls(rows=rows, starts=np.searchsorted(place[rows], np.arange(len(first) + 1)))

    @property
    def first(self) -> Places:
        """Of each group its first row."""
        return self.rows[self.starts[:-1]]

    def of_group(self, group: int) -> list[int]:
        """Its rows, in order."""
        return [int(row) for row in self.rows[self.starts[group] : self.starts[group + 1]]]

    def combined(self, values: Figures, how: Callable[[Any], float]) -> Figures:
        """Of each group one figure."""
        found = values[self.first]
        for group in np.flatnonzero(np.diff(self.starts) > 1).tolist():
            found[group] = how(values[self.of_group(group)].tolist())
        return found


def _point(
    rows: Sequence[Row],
    groups: _Groups,
    combined: tuple[Figures, Figures],
    axes: Mapping[str, str],
    place: int,
) -> Point:
    repeats = [rows[own] for own in groups.of_group(place)]
    first, (memory, speed) = repeats[0], combined
    errors = [
        error for row in repeats if (error := row.get("samples_per_second_error")) is not None
    ]
    return Point(
        choices={axis: first[column] for axis, column in axes.items()},
        environment_id=first["environment_id"],
        equivalence=first["equivalence"],
        memory_bytes=int(memory[place]),
        samples_per_second=float(speed[place]),
        row=first,
        trial_ids=tuple(row["trial_id"] for row in repeats),
        samples_per_second_error=max(errors, default=None),
        warnings=tuple(
            dict.fromkeys(text for row in repeats for text in row.get("warnings") or ())
        ),
    )


def frontiers(
    points: Sequence[Point], *, within: Callable[[Points], Coded] = lambda points: points.trainings
) -> dict[tuple[str, str], tuple[Point, ...]]:
    """(environment_id, ``within``) -> the front of memory and speed of that group: of each kind of training, unless
    asked otherwise. The same as ``frontier`` of each, for very many points.

    Environments are never mixed.
    """
    own = Points.of(points)
    return {key: tuple(own.where(front)) for key, front in fronts(own, within).items()}


def fronts(points: Points, within: Callable[[Points], Coded]) -> dict[tuple[str, str], Places]:
    """The same as places among the points."""
    kinds = within(points)
    group = alike([points.environments, kinds], len(points))
    order = np.lexsort((-points.samples_per_second, points.memory_bytes, group))
    first = first_of_each(group)
    begins, ends = (
        np.searchsorted(group[order], group[first], side=side).tolist()
        for side in ("left", "right")
    )
    found: dict[tuple[str, str], Places] = {}
    for place, begin, end in zip(first.tolist(), begins, ends, strict=True):
        members = order[begin:end]
        key = (
            points.environments.values[points.environments.at[place]],
            kinds.values[kinds.at[place]],
        )
        found[key] = members[
            _unbeaten(points.memory_bytes[members], points.samples_per_second[members])
        ]
    return found


def _unbeaten(memory: Figures, speed: Figures) -> Mask:
    """Which of these stay, in order of memory and, at equal memory, the fastest first. Equals stay or go together."""
    best_before = np.maximum.accumulate(np.concatenate([[-np.inf], speed[:-1]]))
    is_new = np.concatenate([[True], (np.diff(memory) != 0) | (np.diff(speed) != 0)])
    stays: Mask = (speed > best_before)[is_new][np.cumsum(is_new) - 1]
    return stays
