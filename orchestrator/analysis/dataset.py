"""A run's results as one object that is built once.

The verbs report, recommend, compare and explain read it, and so do the follow-ups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from jobs.anatomy_record import Anatomy
from jobs.flags import LOSS, Flag, flag_columns, flags_of
from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, TrainingRecipe
from orchestrator.analysis.baseline import ranked_recipe
from orchestrator.analysis.compile_break_even import set_break_even
from orchestrator.analysis.configuration import Configuration, configurations, memory_column
from orchestrator.analysis.environment_results import EnvironmentResults
from orchestrator.analysis.loss_parity import LossCheck, SameLosses, loss_checks
from orchestrator.analysis.loss_parity.equivalence import MeasuredRecipe, equivalent_recipes
from orchestrator.analysis.loss_parity.references import rounding_of
from orchestrator.labels import label
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.run_reader import anatomies_of, losses_of, read_run_folder
from orchestrator.storage.tables.rows import Row, is_of_the_search, recipe_of
from orchestrator.storage.tables.trial_table import TrialTable, table_of_records

__all__ = [
    "Dataset",
    "EnvironmentResults",
    "build_dataset",
    "dataset_of_records",
    "load_dataset",
]

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
    loss_checks: Mapping[str, LossCheck] = field(default_factory=dict)
    """Trial -> what its losses say, for the ok trials of the search."""
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
        """The run's name, or its folder's."""
        if self.run.name or self.folder is None:
            return self.run.name
        return self.folder.name

    @property
    def main(self) -> EnvironmentResults | None:
        """The environment with most configurations. Recommendations and plots are about this one.

        None if no trial ended ok.
        """
        if not self.environments:
            return None
        return self.environments[0]

    def label(self, choices: Mapping[str, Choice]) -> str:
        """A configuration in a few words."""
        return label(choices, self.varying_axes)

    def pick_label(self, configuration: Configuration) -> str:
        """The name of a pick. It always includes the accumulation, even an accumulation of 1."""
        batch = {name: configuration.row.get(name) for name in ("micro_batch", "accumulation")}
        return label({**configuration.choices, **batch}, (*self.varying_axes, "accumulation"))

    def row_label(self, row: Row) -> str:
        """A row's configuration in a few words."""
        return self.label({axis: row.get(column) for axis, column in self.axes.items()})

    def environment_of(self, environment_id: str) -> EnvironmentResults | None:
        """The results of one environment; None if no trial ended ok in it."""
        for results in self.environments:
            if results.environment_id == environment_id:
                return results
        return None

    @cached_property
    def anatomies(self) -> Mapping[str, Anatomy]:
        """Trial -> the breakdown of its memory and time, for the trials that were profiled."""
        if self.folder is None:
            return {}
        return anatomies_of(self.folder)


def load_dataset(run_folder: Path) -> Dataset:
    """A run from its folder, finished or not.

    Raises FileNotFoundError if the folder holds neither records nor a table, and
    UnreadableRunError if a file is damaged.
    """
    contents = read_run_folder(run_folder)
    return build_dataset(contents.trials, contents.losses, run_folder)


def dataset_of_records(records: Sequence[TrialRecord], run: RunMetadata) -> Dataset:
    """A run from its records in memory."""
    return build_dataset(table_of_records(records, run), losses_of(records))


def build_dataset(table: TrialTable, losses: Losses, folder: Path | None = None) -> Dataset:
    """A run from its table.

    Adds two things to each row that follow from comparing rows: loss flags and break-even steps.
    """
    # Follow-ups say something about other trials. They are never ranked themselves.
    rows = tuple(row for row in table.rows if is_of_the_search(row))
    follow_ups = tuple(row for row in table.rows if not is_of_the_search(row))
    # Without losses, the table keeps its loss flags. With losses, all loss flags are computed
    # again, also those that a trial set itself.
    checks: dict[str, LossCheck] = {}
    if losses:
        checks = loss_checks(rows, losses, table.axes)
        _set_loss_flags(table.rows, checks)
    set_break_even(table.rows, rows, table.axes)
    return Dataset(
        table=table,
        rows=rows,
        follow_ups=follow_ups,
        environments=_Environments(table, rows, follow_ups, losses, checks).sorted(),
        varying_axes=_varying_axes(table, rows),
        losses=losses,
        loss_checks=checks,
        folder=folder,
    )


def _set_loss_flags(rows: Iterable[dict[str, Any]], checks: Mapping[str, LossCheck]) -> None:
    """Replace the rows' loss flags by those of the checks."""
    for row in rows:
        # Old loss flags go: the run may have had fewer rows to compare with when they were set.
        flags = [flag for flag in flags_of(row) if flag.kind not in LOSS]
        flags += _flags_of_check(checks.get(row["trial_id"]))
        if flags or row.get("flags") is not None:
            row.update(flag_columns(flags))


def _flags_of_check(check: LossCheck | None) -> list[Flag]:
    if check is None or check.flag is None:
        return []
    return [check.flag]


def _varying_axes(table: TrialTable, rows: Sequence[Row]) -> tuple[str, ...]:
    """The axes that the run says it varied, then the others on which its rows differ.

    All axes if there are none. Labels name these axes, so two configurations never share a label.
    """
    varying = dict.fromkeys(table.run.axes)
    for axis, column in table.axes.items():
        # A label names each accumulation that matters, so it needs no axis for it.
        is_named = axis == "accumulation" and bool(table.run.axes)
        if not is_named and len({row.get(column) for row in rows}) > 1:
            varying[axis] = None
    return tuple(varying) or tuple(table.axes)


@dataclass(frozen=True, slots=True)
class _Environments:
    """The rows of a run, and their results by environment."""

    table: TrialTable
    rows: Sequence[Row]
    follow_ups: Sequence[Row]
    losses: Losses
    checks: Mapping[str, LossCheck]

    def sorted(self) -> tuple[EnvironmentResults, ...]:
        """The results of each environment, most configurations first."""
        by_environment: dict[str, list[Configuration]] = {}
        for configuration in configurations(self.rows, self.table.axes, self.checks):
            by_environment.setdefault(configuration.environment_id, []).append(configuration)
        choices_and_recipes = _choices_and_recipes(self.rows, self.table.axes)
        wanted = ranked_recipe(choices_and_recipes, self.table.run.baseline)
        results = []
        for environment_id, measured in by_environment.items():
            results.append(self._results(environment_id, measured, wanted))
        return tuple(sorted(results, key=_configurations_descending))

    def _results(
        self, environment_id: str, measured: Sequence[Configuration], wanted: TrainingRecipe
    ) -> EnvironmentResults:
        """The results of one environment.

        ``wanted`` is the recipe of the baseline. It is ranked if it was measured here.
        """
        # If the baseline's recipe has no row that ended ok, the nearest measured recipe is ranked.
        recipe = wanted
        if wanted not in {configuration.training_recipe for configuration in measured}:
            candidates = [(each.choices, each.training_recipe) for each in measured]
            recipe = ranked_recipe(candidates, self.table.run.baseline)
        same_losses = self._same_losses(measured, recipe)
        return EnvironmentResults(
            environment_id=environment_id,
            environment=self.table.environments.get(environment_id, {}),
            run=self.table.run,
            configurations=_ranked_with(measured, recipe, same_losses),
            follow_ups=_in_environment(self.follow_ups, environment_id),
            memory_column=memory_column(_in_environment(self.rows, environment_id)),
            recipe=recipe,
            is_baseline_recipe=recipe == wanted,
            out_of_memory=self._out_of_memory(environment_id),
            same_losses=same_losses,
        )

    def _out_of_memory(self, environment_id: str) -> tuple[Mapping[str, Choice], ...]:
        """The choices of the trials of an environment that ran out of device memory."""
        failed = []
        for row in _in_environment(self.rows, environment_id):
            if row["outcome"] == Outcome.OUT_OF_MEMORY:
                failed.append({axis: row.get(name) for axis, name in self.table.axes.items()})
        return tuple(failed)

    def _same_losses(
        self, measured: Iterable[Configuration], recipe: TrainingRecipe
    ) -> dict[TrainingRecipe, SameLosses]:
        """The recipes that reach the same losses as the ranked recipe, each with its evidence."""
        compared = []
        for configuration in measured:
            compared.append(
                MeasuredRecipe(
                    choices=configuration.choices,
                    recipe=configuration.training_recipe,
                    losses=self.losses.get(configuration.trial_ids[0], ()),
                    rounding=rounding_of(configuration.row, self.table.axes),
                )
            )
        return equivalent_recipes(compared, recipe)


def _ranked_with(
    measured: Iterable[Configuration],
    recipe: TrainingRecipe,
    same_losses: Mapping[TrainingRecipe, SameLosses],
) -> tuple[Configuration, ...]:
    """The configurations, each with the recipe that it is ranked with.

    A configuration whose recipe reaches the same losses as the ranked recipe is ranked with it.
    """
    ranked = []
    for configuration in measured:
        measurement = same_losses.get(configuration.training_recipe)
        if measurement is None:
            ranked.append(configuration)
        else:
            ranked.append(replace(configuration, training_recipe=recipe, same_losses=measurement))
    return tuple(ranked)


def _in_environment(rows: Iterable[Row], environment_id: str) -> tuple[Row, ...]:
    return tuple(row for row in rows if row["environment_id"] == environment_id)


def _configurations_descending(results: EnvironmentResults) -> int:
    return -len(results.configurations)


def _choices_and_recipes(
    rows: Iterable[Row], axes: Mapping[str, str]
) -> list[tuple[Mapping[str, Choice], TrainingRecipe]]:
    listed: list[tuple[Mapping[str, Choice], TrainingRecipe]] = []
    for row in rows:
        choices = {axis: row.get(column) for axis, column in axes.items()}
        listed.append((choices, recipe_of(row)))
    return listed
