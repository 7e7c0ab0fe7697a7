"""A run as an object with methods, which ``load`` returns."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.techniques.sample_kind import same_workload
from orchestrator.analysis.comparison import Comparison, compare
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults, load_dataset
from orchestrator.analysis.explanation import Explanation, explain
from orchestrator.analysis.objectives import objective_of
from orchestrator.analysis.pareto import little_memory, pareto_front
from orchestrator.analysis.recommendation import (
    Constraints,
    LongestContext,
    Rankings,
    Recommendation,
    recommend,
)
from orchestrator.analysis.recommendation.offers import Offer
from orchestrator.storage.layout import written_beside
from orchestrator.storage.location import Location, Uri, location
from orchestrator.units import count, number, size_bytes
from orchestrator.units import memory as memory_text

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from orchestrator.reporting.tune_result import TuneResult


class NothingMeasuredError(ValueError):
    """No trial of the run ended ok, so there are no results."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run's measurements, with methods that answer questions about them.

    ``frontier`` and ``recommend`` use the environment with the most configurations.
    """

    dataset: Dataset

    @property
    def name(self) -> str:
        """The run's name."""
        return self.dataset.name

    @property
    def results(self) -> EnvironmentResults:
        """The results of the environment with the most configurations.

        Raises NothingMeasuredError if no trial ended ok.
        """
        if self.dataset.main is None:
            raise NothingMeasuredError(f"{self.name}: no trial ended ok")
        return self.dataset.main

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The configurations that ended ok, of all environments. Repeats are combined into one."""
        configurations: list[Configuration] = []
        for results in self.dataset.environments:
            configurations += results.configurations
        return tuple(configurations)

    def label(self, configuration: Configuration) -> str:
        """A configuration in a few words."""
        return self.dataset.label(configuration.choices)

    def frontier(
        self,
        objectives: Sequence[str] = ("samples_per_second",),
        *,
        price_per_hour: float | None = None,
        all_recipes: bool = False,
    ) -> tuple[Configuration, ...]:
        """The Pareto front of memory and the named objectives.

        Only configurations of the baseline's training recipe compete, unless ``all_recipes``.
        Configurations whose losses contradict their reference are left out. Raises KeyError if a
        name is not in ``OBJECTIVES``, and ValueError if an objective needs a price.
        """
        scores: list[Callable[[Configuration], float]] = [little_memory]
        for name in objectives:
            objective = objective_of(name)
            objective.check_price(price_per_hour)
            scores.append(partial(objective.score, price_per_hour=price_per_hour))
        if self.dataset.main is None:
            return ()
        # Configurations of another recipe learn something else, so they compete only if asked.
        candidates = []
        for configuration in self.results.sound:
            recipe = configuration.training_recipe
            comparable = all_recipes and same_workload(recipe, self.results.recipe)
            if comparable or recipe == self.results.recipe:
                candidates.append(configuration)
        return pareto_front(candidates, scores)

    def recommend(
        self,
        *,
        memory: int | str | None = None,
        memory_bytes: int | None = None,
        effective_batch: int | None = None,
        all_recipes: bool = False,
        objective: str = "samples_per_second",
        price_per_hour: float | None = None,
    ) -> Answer:
        """The best configuration under constraints.

        ``memory`` is bytes, or text such as "24GiB". ``memory_bytes`` is the same as a number.
        A configuration whose losses contradict their reference is never recommended. Raises
        KeyError if the objective is unknown, and ValueError if ``memory`` is not a size, if the
        batch or the price is not a number above zero, or if the objective needs a price.
        """
        if memory is not None:
            memory_bytes = size_bytes(memory)
        constraints = Constraints(
            memory_bytes=memory_bytes,
            effective_batch=effective_batch,
            all_recipes=all_recipes,
            objective=objective_of(objective),
            price_per_hour=price_per_hour,
        )
        return Answer(self, self.recommendation(constraints))

    @property
    def tune_results(self) -> tuple[TuneResult, ...]:
        """The result of ``tune`` for each memory budget, as it was stored with the run.

        Raises UnreadableRunError if the stored file is damaged.
        """
        from orchestrator.reporting.tune_result import read

        return read(self.dataset).results

    def longest(
        self, *, memory: int | str | None = None, all_recipes: bool = False
    ) -> tuple[LongestContext, ...]:
        """The longest context that trains in the memory, for each set of techniques.

        ``memory`` is bytes, or text such as "24GiB"; None: the whole GPU. Empty if the run does not
        vary ``sequence_length``, or nothing fits. Raises ValueError if the memory is not a size.
        """
        if self.dataset.main is None:
            return ()
        limit = memory
        if isinstance(limit, str):
            limit = size_bytes(limit)
        return self.results.longest(limit, all_recipes=all_recipes)

    def recommendation(self, constraints: Constraints) -> Recommendation:
        """The best configuration under ``constraints``, as plain data."""
        # A run without results still gives an answer: that nothing fits.
        results = self.dataset.main
        if results is None:
            return recommend(Rankings(()), constraints)
        return results.recommend(constraints)

    def export(
        self,
        candidate: Offer,
        folder: Path | str,
        *,
        epochs: float | None = None,
        force: bool = False,
    ) -> tuple[Path, ...]:
        """Write the files to train ``candidate`` with. Returns their paths.

        Raises NotExportableError if the candidate cannot be exported. Raises FileExistsError if
        ``folder`` holds files, unless ``force``, which overwrites files of the same names.
        """
        from orchestrator.export import export_candidate

        return export_candidate(self.dataset, candidate, Path(folder), epochs=epochs, force=force)

    def compare(self, after: Run) -> Comparison:
        """How this run's configurations differ from the same ones in the run ``after``."""
        return compare(self.dataset, after.dataset)

    def explain(self, before: str, after: str) -> Explanation:
        """Why one trial differs from another. Both are given as a trial id or its beginning.

        Raises LookupError if no trial or several match. Raises NotExplainableError if one was not
        measured, or if the two ran in different environments.
        """
        return explain(self.dataset, before, after)

    def plot(self) -> Picture:
        """A picture of the frontier, memory against speed. A notebook shows it by itself."""
        from orchestrator.reporting.plots import frontier

        return Picture(frontier.render(self.dataset))

    def to_arrow(self) -> pyarrow.Table:
        """One row per trial. The metadata of each field gives its unit and meaning."""
        from orchestrator.storage.tables.parquet import arrow_table

        return arrow_table(self.dataset.table)

    def to_pandas(self) -> pandas.DataFrame:
        """One row per trial."""
        return self.to_arrow().to_pandas()

    @property
    def environments(self) -> Mapping[str, Mapping[str, object]]:
        """environment_id -> GPU model, driver and versions."""
        return self.dataset.table.environments

    def __repr__(self) -> str:
        trials = count(len(self.dataset.rows), "trial")
        hardware = "nothing measured"
        if self.dataset.main:
            hardware = self.dataset.main.hardware
        unreadable = "".join(f"; {sentence}" for sentence in self.unreadable)
        return f"<Run {self.name}: {trials}, {hardware}{unreadable}>"

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Sentences about records that cannot be read; empty if all can be read."""
        return self.dataset.table.unreadable

    def _repr_html_(self) -> str:
        """The frontier as a table, for a notebook."""
        caption = html.escape(repr(self)[1:-1])
        head = "<th>configuration</th><th>memory</th><th>samples/s</th>"
        body = "".join(map(self._html_row, self.frontier()))
        return (
            f"<table><caption>{caption}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _html_row(self, configuration: Configuration) -> str:
        cells = [
            html.escape(self.label(configuration)),
            memory_text(configuration.memory_bytes),
            number(configuration.samples_per_second),
        ]
        return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A picture that shows itself in a notebook."""

    png: bytes

    def save(self, path: Path | str) -> Path:
        """Write the picture to a PNG file, in place of any earlier one; returns its path."""
        target = Path(path)
        with written_beside(target) as partial:
            partial.write_bytes(self.png)
        return target

    def __repr__(self) -> str:
        return f"<Picture: PNG of {memory_text(len(self.png))}; save(PATH) writes it>"

    def _repr_png_(self) -> bytes:
        return self.png


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """A recommendation that shows itself in words."""

    run: Run
    recommendation: Recommendation

    @property
    def best(self) -> Offer | None:
        """The candidate to train with; None if none meets the constraints."""
        return self.recommendation.best

    @property
    def runners_up(self) -> tuple[Offer, ...]:
        """The next best candidates, one for each other set of techniques."""
        return self.recommendation.runners_up

    def __repr__(self) -> str:
        from orchestrator.reporting.recommendation import render

        return render(self.run.dataset, self.recommendation)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def load(run: Location | str) -> Run:
    """Load a run, finished or not, from its folder or URI.

    Raises FileNotFoundError if there are neither records nor a table, and UnreadableRunError if a
    file is damaged. Raises ValueError if a URI is not valid, and OSError if it cannot be read.
    """
    return Run(load_dataset(local_folder(run)))


def local_folder(run: Location | str) -> Path:
    """The folder of a run. A run at a URI is downloaded first. Raises what ``load`` raises."""
    target = run
    if not isinstance(target, Uri):
        target = location(target)
    # A folder on this machine is read in place; only a URI is downloaded.
    if isinstance(target, Path):
        return target
    from orchestrator.storage.remote import fetched

    return fetched(target)
