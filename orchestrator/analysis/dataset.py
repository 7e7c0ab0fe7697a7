"""A run's results as one object that is built once, for all verbs and the follow-ups."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from jobs.anatomy_record import Anatomy
from jobs.flags import LOSS, flag_columns, flags_of
from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, TrainingRecipe
from jobs.techniques import AXES, BATCH_AXES
from orchestrator.analysis.baseline import ranked_recipe
from orchestrator.analysis.configuration import (
    Configuration,
    choices_of,
    configurations,
    memory_column,
)
from orchestrator.analysis.environment_results import EnvironmentResults
from orchestrator.analysis.gradient_results import gradient_results, with_gradient_flags
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.loss_parity.equivalence import equivalent_recipes
from orchestrator.analysis.loss_parity.loss_checks import LossCheck, loss_checks
from orchestrator.analysis.objectives import CACHE_HITS
from orchestrator.labels import label
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.run_reader import anatomies_of, losses_of, read_run_folder
from orchestrator.storage.tables.rows import Row, is_of_the_search, recipe_of
from orchestrator.storage.tables.trial_table import TrialTable, table_of_records

__all__ = ["Dataset", "EnvironmentResults", "build_dataset", "dataset_of_records", "load_dataset"]

Losses = Mapping[str, Sequence[float]]
"""Trial -> its losses, step by step, warm-up included."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A run's results, of every environment that it was measured in."""

    table: TrialTable
    rows: tuple[Row, ...]
    """The trials of the search."""
    follow_ups: tuple[Row, ...]
    """The trials that check or profile trials of the search."""
    environments: tuple[EnvironmentResults, ...]
    """The environments in which a trial ended ok. The one with most configurations is first."""
    varying_axes: tuple[str, ...]
    """The axes on which trials differ. A label names these."""
    losses: Losses
    folder: Path | None = None

    @property
    def run(self) -> RunMetadata:
        return self.table.run

    @property
    def axes(self) -> Mapping[str, str]:
        """Axis -> its column."""
        return self.table.axes

    @property
    def name(self) -> str:
        """The run's name, or its folder's."""
        return self.run.name or ("" if self.folder is None else self.folder.name)

    @property
    def main(self) -> EnvironmentResults | None:
        """The environment with most configurations; None if no trial ended ok."""
        return next(iter(self.environments), None)

    def label(self, choices: Mapping[str, Choice]) -> str:
        """A configuration in a few words."""
        return label(choices, self.varying_axes)

    def pick_label(self, configuration: Configuration) -> str:
        """The name of a pick. It always includes the accumulation, even an accumulation of 1."""
        batch = {name: configuration.row.get(name) for name in BATCH_AXES}
        return label({**configuration.choices, **batch}, (*self.varying_axes, "accumulation"))

    def row_label(self, row: Row) -> str:
        return self.label(choices_of(row, self.axes))

    def environment_of(self, environment_id: str) -> EnvironmentResults | None:
        """The results of one environment; None if no trial ended ok in it."""
        found = (own for own in self.environments if own.environment_id == environment_id)
        return next(found, None)

    @cached_property
    def anatomies(self) -> Mapping[str, Anatomy]:
        """Trial -> the breakdown of its memory and time, for the trials that were profiled."""
        return {} if self.folder is None else anatomies_of(self.folder)


def load_dataset(run_folder: Path) -> Dataset:
    """A run from its folder. Raises FileNotFoundError or UnreadableRunError."""
    contents = read_run_folder(run_folder)
    return build_dataset(contents.trials, contents.losses, run_folder)


def dataset_of_records(records: Sequence[TrialRecord], run: RunMetadata) -> Dataset:
    """A run from its records in memory."""
    return build_dataset(table_of_records(records, run), losses_of(records))


def build_dataset(table: TrialTable, losses: Losses, folder: Path | None = None) -> Dataset:
    """A run from its table, whose rows get their loss flags and break-even steps."""
    # Follow-ups say something about other trials. They are never ranked themselves.
    rows = tuple(row for row in table.rows if is_of_the_search(row))
    follow_ups = tuple(row for row in table.rows if not is_of_the_search(row))
    checks = loss_checks(rows, losses, table.axes) if losses else {}
    # Without losses, the table keeps its loss flags.
    if losses:
        _set_loss_flags(table.rows, checks)
    break_even = break_even_steps(rows, table.axes)
    for row in table.rows:
        row["compile_break_even_steps"] = break_even.get(row["trial_id"])
    wanted = ranked_recipe(
        [(choices_of(row, table.axes), recipe_of(row)) for row in rows], table.run.baseline
    )
    measured = grouped(configurations(rows, table.axes, checks), attrgetter("environment_id"))
    environments = [_results(table, members, wanted, losses) for members in measured.values()]
    return Dataset(
        table=table,
        rows=rows,
        follow_ups=follow_ups,
        environments=tuple(sorted(environments, key=lambda own: -len(own.configurations))),
        varying_axes=_varying_axes(table, rows),
        losses=losses,
        folder=folder,
    )


def _varying_axes(table: TrialTable, rows: Sequence[Row]) -> tuple[str, ...]:
    """All axes if there are none. Labels name them, so two configurations never share a label."""
    varying = dict.fromkeys(table.run.axes)
    for axis, column in table.axes.items():
        # A label names each accumulation that matters, so it needs no axis for it.
        is_named = axis == "accumulation" and bool(table.run.axes)
        if not is_named and len({row.get(column) for row in rows}) > 1:
            varying[axis] = None
    return tuple(varying) or tuple(table.axes)


def _set_loss_flags(rows: Iterable[dict[str, Any]], checks: Mapping[str, LossCheck]) -> None:
    """Replace all loss flags: when old ones were set, there were fewer rows to compare with."""
    for row in rows:
        flags = [flag for flag in flags_of(row) if flag.kind not in LOSS]
        check = checks.get(row["trial_id"])
        if check is not None and check.flag is not None:
            flags.append(check.flag)
        if flags or row.get("flags") is not None:
            row.update(flag_columns(flags))


def _results(
    table: TrialTable, measured: Sequence[Configuration], wanted: TrainingRecipe, losses: Losses
) -> EnvironmentResults:
    # If the baseline's recipe has no row that ended ok, the nearest measured recipe is ranked.
    recipe = wanted
    if wanted not in {own.training_recipe for own in measured}:
        candidates = [(own.choices, own.training_recipe) for own in measured]
        recipe = ranked_recipe(candidates, table.run.baseline)
    # Configurations whose recipe reaches the ranked recipe's losses are ranked with it.
    same_losses = equivalent_recipes(measured, recipe, losses, table.axes)
    ranked = [
        replace(own, training_recipe=recipe, same_losses=same_losses[own.training_recipe])
        if own.training_recipe in same_losses
        else own
        for own in measured
    ]
    environment_id = measured[0].environment_id
    rows = [row for row in table.rows if row["environment_id"] == environment_id]
    searched = [row for row in rows if is_of_the_search(row)]
    by_outcome = grouped(searched, itemgetter("outcome"))
    follow_ups = tuple(row for row in rows if not is_of_the_search(row))
    return EnvironmentResults(
        environment_id=environment_id,
        environment=table.environments.get(environment_id, {}),
        run=table.run,
        configurations=with_gradient_flags(ranked, gradient_results(follow_ups)),
        follow_ups=follow_ups,
        memory_column=memory_column(searched),
        recipe=recipe,
        is_baseline_recipe=recipe == wanted,
        out_of_memory=tuple(
            choices_of(row, table.axes) for row in by_outcome.get(Outcome.OUT_OF_MEMORY, ())
        ),
        without_figures=len(by_outcome[Outcome.OK]) - sum(len(own.trial_ids) for own in measured),
        same_losses=same_losses,
    )


_NEEDED = ("first_step_seconds", "step_seconds_median")


def break_even_steps(rows: Iterable[Row], axes: Mapping[str, str]) -> dict[str, float]:
    """Compiled trial -> steps until compiling has paid for itself; infinite if they save no time.
    Listed if an eager trial has the same other choices, and no code came from the node's compile
    cache."""
    compile_column = axes.get("compile")
    if compile_column is None:
        return {}
    equal = ["environment_id", *(column for column in axes.values() if column != compile_column)]
    compiled: list[tuple[tuple[object, ...], Row]] = []
    eager: dict[tuple[object, ...], Row] = {}
    for row in rows:
        if row["outcome"] == Outcome.OK and None not in map(row.get, _NEEDED):
            others = tuple(map(row.get, equal))
            if row[compile_column] == AXES["compile"].default:
                eager[others] = row
            else:
                compiled.append((others, row))
    figures = {row["trial_id"]: _steps(row, eager[key]) for key, row in compiled if key in eager}
    return {trial_id: steps for trial_id, steps in figures.items() if steps is not None}


def _steps(compiled: Row, eager: Row) -> float | None:
    # Compilation happens in the first step, so the extra time of that step is its price.
    spent = compiled["first_step_seconds"] - eager["first_step_seconds"]
    saved = eager["step_seconds_median"] - compiled["step_seconds_median"]
    if saved <= 0:
        return math.inf
    # By chance the compiled first step can be shorter than the eager one: a cost of 0.
    is_cached = any(compiled.get(name) for name in CACHE_HITS)
    return None if is_cached else float(max(0.0, spent) / saved)
