"""A run's results as one object, built once: report, recommend, compare, explain and follow-ups all
read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jobs.anatomy_record import Anatomy
from jobs.flags import LOSS, Flag, flag_columns, flags_of
from jobs.record import TrialRecord
from jobs.spec import Choice, TrainingRecipe
from orchestrator.analysis.baseline import baseline_choices, ranked_recipe
from orchestrator.analysis.budgets import BudgetPick, best_in_budgets, fastest
from orchestrator.analysis.cap_checks import CapCheck, cap_checks
from orchestrator.analysis.compile_break_even import break_even_steps
from orchestrator.analysis.configuration import Configuration, configurations, memory_column
from orchestrator.analysis.effects import (
    CumulativeStep,
    TechniqueEffect,
    cumulative_steps,
    technique_effects,
)
from orchestrator.analysis.hf_guide import GuideRow, guide_rows
from orchestrator.analysis.loss_parity import loss_flags
from orchestrator.analysis.pareto import fronts_by, memory_speed_front
from orchestrator.analysis.tie_breaks import PairedComparison, paired_comparisons
from orchestrator.labels import label
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.run_reader import anatomies_of, losses_of, read_run_folder
from orchestrator.storage.tables.rows import Row, is_of_the_search, recipe_of
from orchestrator.storage.tables.trial_table import TrialTable, table_of_records


@dataclass(frozen=True, kw_only=True)
class EnvironmentResults:
    """What was measured in one environment: the only configurations ever ranked together."""

    environment_id: str
    environment: Mapping[str, Any]
    """GPU model, driver and versions."""
    run: RunMetadata
    configurations: tuple[Configuration, ...]
    follow_ups: tuple[Row, ...]
    """Trials about the search's result."""
    memory_column: str
    """The column that memory is compared by."""
    recipe: TrainingRecipe
    """The training recipe that is ranked: the baseline's, or the nearest that ended ok."""
    is_baseline_recipe: bool

    @property
    def hardware(self) -> str:
        """The GPU's name, or the processor's where there is none."""
        model = self.environment.get("gpu_model") or self.environment.get("cpu_model")
        return str(model or "unknown hardware")

    @property
    def device_bytes(self) -> float:
        """The GPU's whole memory; infinite where it is not known."""
        return self.environment.get("gpu_memory_bytes") or math.inf

    @cached_property
    def fronts(self) -> Mapping[TrainingRecipe, tuple[Configuration, ...]]:
        """Training recipe -> its Pareto front of memory and speed, at any batch size."""
        return fronts_by(self.configurations, lambda own: own.training_recipe)

    @property
    def front(self) -> tuple[Configuration, ...]:
        """The front of the recipe that is ranked."""
        return self.fronts.get(self.recipe, ())

    @cached_property
    def front_across_recipes(self) -> tuple[Configuration, ...]:
        """The front of all recipes together."""
        return memory_speed_front(self.configurations)

    @cached_property
    def cap_checks(self) -> tuple[CapCheck, ...]:
        """Picks that ran again under a memory cap."""
        return cap_checks(self.follow_ups)

    @cached_property
    def comparisons(self) -> tuple[PairedComparison, ...]:
        """Tie-breaks between close configurations."""
        return paired_comparisons(self.follow_ups)

    @cached_property
    def budget_picks(self) -> tuple[BudgetPick, ...]:
        """The fastest configuration in each memory budget."""
        return best_in_budgets(
            self.configurations, self.run.budgets, self.recipe, self.cap_checks, self.comparisons
        )

    @property
    def picks(self) -> tuple[Configuration, ...]:
        """The best in each budget, each with the faster one of another recipe behind it."""
        found: list[Configuration] = []
        for pick in self.budget_picks:
            found += [own for own in (pick.best, pick.other) if own is not None]
        return tuple(found)

    @property
    def best(self) -> Configuration | None:
        """The fastest configuration of the recipe that is ranked."""
        return fastest(self.front)

    @cached_property
    def baseline(self) -> Mapping[str, Choice]:
        """Axis -> the value that techniques are compared with."""
        return baseline_choices(self.configurations, self.run.baseline)

    @cached_property
    def effects(self) -> tuple[TechniqueEffect, ...]:
        """What each technique did to the baseline."""
        return technique_effects(self.configurations, self.baseline)

    @cached_property
    def cumulative_steps(self) -> tuple[CumulativeStep, ...]:
        """One technique on top of another."""
        return cumulative_steps(self.configurations, self.baseline)

    @cached_property
    def guide_rows(self) -> tuple[GuideRow, ...]:
        """The configurations measured as the Hugging Face guides measure."""
        return guide_rows(self.run, self.configurations)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A run's results, of every environment that it was measured in."""

    table: TrialTable
    rows: tuple[Row, ...]
    """The trials of the search."""
    follow_ups: tuple[Row, ...]
    """Trials about its result."""
    environments: tuple[EnvironmentResults, ...]
    """Those in which something ended ok, most configurations first."""
    varying_axes: tuple[str, ...]
    """The axes on which trials differ, which labels name."""
    losses: Mapping[str, Sequence[float]]
    """Trial -> its losses, step by step, warm-up included."""
    folder: Path | None = None

    @property
    def run(self) -> RunMetadata:
        """What was run."""
        return self.table.run

    @property
    def axes(self) -> Mapping[str, str]:
        """Axis -> its column."""
        return self.table.axes

    @property
    def name(self) -> str:
        """The run's name."""
        return self.run.name or (self.folder.name if self.folder else "")

    @property
    def main(self) -> EnvironmentResults | None:
        """The environment with most configurations: questions are answered for it."""
        return self.environments[0] if self.environments else None

    def label(self, choices: Mapping[str, Choice]) -> str:
        """A configuration in a few words."""
        return label(choices, self.varying_axes)

    def row_label(self, row: Row) -> str:
        """A row's configuration in a few words."""
        return self.label({axis: row.get(column) for axis, column in self.axes.items()})

    def environment_of(self, environment_id: str) -> EnvironmentResults | None:
        """The results of one environment; None where nothing ended ok in it."""
        found = (own for own in self.environments if own.environment_id == environment_id)
        return next(found, None)

    @cached_property
    def anatomies(self) -> Mapping[str, Anatomy]:
        """Trial -> where its memory and time went, of those that were profiled."""
        return anatomies_of(self.folder) if self.folder else {}


def load_dataset(run_folder: Path) -> Dataset:
    """A run from its folder, finished or not.

    Raises FileNotFoundError where it holds neither records nor a table, UnreadableRunError on a
    damaged file.
    """
    contents = read_run_folder(run_folder)
    return build_dataset(contents.trials, contents.losses, run_folder)


def dataset_of_records(records: Sequence[TrialRecord], run: RunMetadata) -> Dataset:
    """A run from its records in memory."""
    return build_dataset(table_of_records(records, run), losses_of(records))


def build_dataset(
    table: TrialTable, losses: Mapping[str, Sequence[float]], folder: Path | None = None
) -> Dataset:
    """A run from its table.

    Adds to the rows what follows from several of them: loss flags, break-even steps.
    """
    rows = tuple(row for row in table.rows if is_of_the_search(row))
    follow_ups = tuple(row for row in table.rows if not is_of_the_search(row))
    if losses:
        _set_loss_flags(table.rows, loss_flags(rows, losses, table.axes))
    break_even = break_even_steps(rows, table.axes)
    for row in table.rows:
        row["compile_break_even_steps"] = break_even.get(row["trial_id"])
    return Dataset(
        table=table,
        rows=rows,
        follow_ups=follow_ups,
        environments=_environments(table, rows, follow_ups),
        varying_axes=_varying_axes(table, rows),
        losses=losses,
        folder=folder,
    )


def _set_loss_flags(rows: Iterable[dict[str, Any]], found: Mapping[str, Flag]) -> None:
    """Replace the rows' loss flags by those found."""
    for row in rows:
        flags = [flag for flag in flags_of(row) if flag.kind not in LOSS]
        if row["trial_id"] in found:
            flags.append(found[row["trial_id"]])
        if flags or row.get("flags") is not None:
            row.update(flag_columns(flags))


def _varying_axes(table: TrialTable, rows: Sequence[Row]) -> tuple[str, ...]:
    """The axes in play as the run says; else those on which rows differ; all where none do."""
    if table.run.axes:
        return table.run.axes
    varying = []
    for axis, column in table.axes.items():
        if len({row.get(column) for row in rows}) > 1:
            varying.append(axis)
    return tuple(varying) or tuple(table.axes)


def _environments(
    table: TrialTable, rows: Sequence[Row], follow_ups: Sequence[Row]
) -> tuple[EnvironmentResults, ...]:
    by_environment: dict[str, list[Configuration]] = {}
    for configuration in configurations(rows, table.axes):
        by_environment.setdefault(configuration.environment_id, []).append(configuration)
    wanted = ranked_recipe(_choices_and_recipes(rows, table.axes), table.run.baseline)
    results = []
    for environment_id, own in by_environment.items():
        measured = {configuration.training_recipe for configuration in own}
        candidates = [(one.choices, one.training_recipe) for one in own]
        recipe = wanted if wanted in measured else ranked_recipe(candidates, table.run.baseline)
        here = [row for row in rows if row["environment_id"] == environment_id]
        results.append(
            EnvironmentResults(
                environment_id=environment_id,
                environment=table.environments.get(environment_id, {}),
                run=table.run,
                configurations=tuple(own),
                follow_ups=tuple(
                    row for row in follow_ups if row["environment_id"] == environment_id
                ),
                memory_column=memory_column(here),
                recipe=recipe,
                is_baseline_recipe=recipe == wanted,
            )
        )
    return tuple(sorted(results, key=lambda own: -len(own.configurations)))


def _choices_and_recipes(
    rows: Iterable[Row], axes: Mapping[str, str]
) -> list[tuple[Mapping[str, Choice], TrainingRecipe]]:
    found: list[tuple[Mapping[str, Choice], TrainingRecipe]] = []
    for row in rows:
        choices = {axis: row.get(column) for axis, column in axes.items()}
        found.append((choices, recipe_of(row)))
    return found
