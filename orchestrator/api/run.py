"""A run as an object with methods, which ``load`` returns."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.comparison.changes import Comparison
from orchestrator.analysis.comparison.two_runs import compare
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults, load_dataset
from orchestrator.analysis.explanation.result import Explanation
from orchestrator.analysis.explanation.two_trials import explain
from orchestrator.analysis.objectives import objective_of, over_steps
from orchestrator.analysis.pareto import little_memory, pareto_front
from orchestrator.analysis.recommendation import (
    Constraints,
    LongestContext,
    Rankings,
    Recommendation,
    recommend,
)
from orchestrator.analysis.recommendation.offers import Offer, as_measured
from orchestrator.api.picture import Picture
from orchestrator.planning.problems import guess_after
from orchestrator.storage.layout import RUN
from orchestrator.storage.location import Location, Uri, location
from orchestrator.units import count, number, size_bytes
from orchestrator.units import memory as memory_text

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from orchestrator.reporting.verbs.tune_result import TuneResult


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
        """Those of the largest environment; raises NothingMeasuredError if no trial ended ok."""
        if self.dataset.main is None:
            raise NothingMeasuredError(f"{self.name}: no trial ended ok")
        return self.dataset.main

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The configurations that ended ok, of all environments. Repeats are combined into one."""
        return tuple(own for each in self.dataset.environments for own in each.configurations)

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
        """The Pareto front of memory and the named objectives, without wrong losses.

        Only configurations of the baseline's training recipe compete, unless ``all_recipes``.
        Raises ValueError if a name is not in ``OBJECTIVES``, or without a needed price.
        """
        scores: list[Callable[[Configuration], float]] = [little_memory]
        for name in objectives:
            objective = objective_of(name)
            objective.check_price(price_per_hour)
            scores.append(partial(objective.score, price_per_hour=price_per_hour))
        if self.dataset.main is None:
            return ()
        # Configurations of another recipe learn something else, so they compete only if asked.
        asked, recipe = Constraints(all_recipes=all_recipes), self.results.recipe
        sound = self.results.sound
        allowed = [own for own in sound if asked.allow_training(as_measured(own), recipe)]
        return pareto_front(allowed, scores)

    def recommend(
        self,
        *,
        memory: int | str | None = None,
        memory_bytes: int | str | None = None,
        effective_batch: int | None = None,
        all_recipes: bool = False,
        objective: str = "samples_per_second",
        steps: int | None = None,
        price_per_hour: float | None = None,
    ) -> Answer:
        """The best configuration under constraints; never one with wrong losses.

        ``memory`` is bytes, or text such as "24GiB"; ``memory_bytes`` is another name for it. With
        ``steps``, the speed is that of a training of so many steps, its compiling included.
        Raises ValueError if the objective is unknown, if ``memory`` is not a size, if the batch or
        the price is not a number above zero, or if the objective needs a price.
        """
        limit = memory_bytes if memory is None else memory
        constraints = Constraints(
            memory_bytes=None if limit is None else size_bytes(limit),
            effective_batch=effective_batch,
            all_recipes=all_recipes,
            objective=over_steps(steps) if steps else objective_of(objective),
            price_per_hour=price_per_hour,
        )
        return Answer(self, self.recommendation(constraints))

    @property
    def tune_results(self) -> tuple[TuneResult, ...]:
        """The stored result of ``tune`` for each budget. UnreadableRunError: it is damaged."""
        from orchestrator.reporting.verbs.tune_result import read

        return read(self.dataset).results

    def longest(
        self, *, memory: int | str | None = None, all_recipes: bool = False
    ) -> tuple[LongestContext, ...]:
        """The longest context that trains in the memory, for each set of techniques.

        ``memory`` is bytes, or text such as "24GiB"; None: the whole GPU. Raises ValueError if it
        is not a size.
        """
        if self.dataset.main is None:
            return ()
        limit = None if memory is None else size_bytes(memory)
        return self.results.longest(limit, all_recipes=all_recipes)

    def recommendation(self, constraints: Constraints) -> Recommendation:
        """The best configuration under ``constraints``, as plain data."""
        results = self.dataset.main
        # A run without results still gives an answer: that nothing fits.
        return recommend(Rankings(()) if results is None else results.rankings, constraints)

    def export(
        self,
        candidate: Answer | Offer | Configuration,
        folder: Path | str,
        *,
        epochs: float | None = None,
        own_file: Path | str | None = None,
        report_to: str | Sequence[str] = (),
        force: bool = False,
        say: Callable[[str], object] = lambda _: None,
    ) -> tuple[Path, ...]:
        """Write the files to train a configuration with, or the best of an answer, and return their
        paths. ``own_file`` is another trainer's file, of which a changed copy is written, too, and
        ``say`` gets what it changes. ``report_to`` names services that the training reports to.

        Raises ValueError if the answer names none, UnreadableFileError if that file is in no known
        dialect, NotExportableError if the candidate cannot be exported, and FileExistsError if
        ``folder`` holds files, unless ``force`` overwrites those of the same names."""
        from orchestrator.export import export_candidate

        best = candidate.best if isinstance(candidate, Answer) else candidate
        if isinstance(best, Configuration):
            best = as_measured(best)
        if best is None:
            raise ValueError("no measured configuration meets the constraints of this answer")
        if not isinstance(best, Offer):
            raise TypeError(f"give an answer or one of run.configurations, not {candidate!r}")
        own = None if own_file is None else Path(own_file)
        carried: dict[str, Any] = {"epochs": epochs, "report_to": report_to, "say": say}
        return export_candidate(
            self.dataset, best, Path(folder), **carried, own_file=own, force=force
        )

    def compare(self, after: Run) -> Comparison:
        """How this run's configurations differ from the same ones in the run ``after``."""
        return compare(self.dataset, after.dataset)

    def explain(self, before: str, after: str) -> Explanation:
        """Why one trial differs from another. Both are given as a trial id or its beginning.

        Raises LookupError if no trial or several match, and NotExplainableError.
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
        hardware = self.dataset.main.hardware if self.dataset.main else "nothing measured"
        unreadable = "".join(f"; {sentence}" for sentence in self.unreadable)
        return f"<Run {self.name}: {trials}, {hardware}{unreadable}>"

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Sentences about records that cannot be read; empty if all can be read."""
        return self.dataset.table.unreadable

    def _repr_html_(self) -> str:
        """The frontier as a table, for a notebook."""
        rows = "".join(
            f"<tr><td>{html.escape(self.label(own))}</td><td>{memory_text(own.memory_bytes)}</td>"
            f"<td>{number(own.samples_per_second)}</td></tr>"
            for own in self.frontier()
        )
        head = "<th>configuration</th><th>memory</th><th>samples/s</th>"
        return (
            f"<table><caption>{html.escape(repr(self)[1:-1])}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )


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
        from orchestrator.reporting.verbs.recommendation import render

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
    target = run if isinstance(run, Uri) else location(run)
    # A folder on this machine is read in place; only a URI is downloaded.
    if isinstance(target, Path):
        _refuse_other_than_folder(target)
        return target
    from orchestrator.storage.remote import fetched

    return fetched(target)


def _refuse_other_than_folder(run: Path) -> None:
    """Raise FileNotFoundError, with the run that was probably meant, if there is no such folder."""
    if run.is_dir():
        return
    if run.is_file():
        raise FileNotFoundError(f"{run} is a file; a run is the folder that a sweep has written")
    found = [path for own in (run.parent, Path("runs")) for path in own.glob(f"*/{RUN}")]
    runs = [str(path.parent) for path in found]
    raise FileNotFoundError(f"there is no folder {run}{guess_after(str(run), runs)}")
