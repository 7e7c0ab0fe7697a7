"""The answer of ``tune``: the pick of each budget, what it gains, and how sure the search is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.flags import SHARED
from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.recommendation import Constraints, Recommendation
from orchestrator.reporting import flags
from orchestrator.reporting.recommendation import pick_lines
from orchestrator.reporting.recommendation_json import to_json as recommendation_json
from orchestrator.reporting.sections.search_evidence import certainty, counts
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.storage.search_summary import BudgetResult, SearchSummary
from orchestrator.units import change, memory, number


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneAnswer:
    """What is known of one budget on one GPU model."""

    results: EnvironmentResults
    budget_bytes: int | None
    """None: no budget was named, and the machine's memory is unknown."""
    all_recipes: bool
    """Whether every training recipe could answer, or only that of the user's own arguments."""
    recommendation: Recommendation
    evidence: BudgetResult | None
    """What the search says of this budget; None in a run that was killed before its search ended.
    """
    is_one_of_several: bool
    """Whether the run has several GPU models, of which each has answers."""
    own: Configuration | None
    """The user's own configuration as it was measured; None: it did not end ok."""

    @property
    def best(self) -> Candidate | None:
        """What to train with."""
        return self.recommendation.best

    @property
    def folder_name(self) -> str:
        """Where in the run folder its files to train with are."""
        size = "all-memory"
        if self.budget_bytes is not None:
            size = memory(self.budget_bytes).replace(" ", "")
        if self.all_recipes:
            size = f"{size}-any-recipe"
        if self.is_one_of_several:
            size = f"{size}-{self.results.hardware.replace(' ', '-')}"
        return f"train-{size}"

    @property
    def gain(self) -> float | None:
        """The pick's speed divided by that of the user's own arguments; None if unknown."""
        if self.best is None or self.own is None:
            return None
        own = self.own.samples_per_second
        return self.best.configuration.samples_per_second / own


def tune_answers(dataset: Dataset) -> list[TuneAnswer]:
    """One for each question of each environment's search; none if nothing was measured."""
    answers = []
    for results in dataset.environments:
        own = _own(results)
        summary = dataset.run.search_summary
        search = None
        if summary is not None:
            search = summary.of_gpu_model(results.hardware)
        for budget, all_recipes, evidence in _questions(dataset, search):
            constraints = Constraints(
                memory_bytes=budget,
                effective_batch=search and search.effective_batch,
                all_recipes=all_recipes,
            )
            answers.append(
                TuneAnswer(
                    results=results,
                    budget_bytes=budget,
                    all_recipes=all_recipes,
                    recommendation=results.recommend(constraints),
                    evidence=evidence,
                    is_one_of_several=len(dataset.environments) > 1,
                    own=own,
                )
            )
    return answers


def _own(results: EnvironmentResults) -> Configuration | None:
    """The user's own configuration."""
    for configuration in results.configurations:
        if dict(configuration.choices) == dict(results.baseline):
            return configuration
    return None


def _questions(
    dataset: Dataset, search: SearchSummary | None
) -> Iterator[tuple[int | None, bool, BudgetResult | None]]:
    """Budget, whether all recipes count, and the evidence."""
    if search is not None and search.results:
        for evidence in search.results:
            yield evidence.budget_bytes, evidence.recipe == "any", evidence
        return
    # A run that was killed has no summary of its search.
    for budget in dataset.run.budgets or (None,):
        yield budget, False, None


def describe(dataset: Dataset, answers: Sequence[TuneAnswer], exported: Mapping[str, str]) -> str:
    """Lines of text: for each budget its pick, the runner-up, the gain and the evidence."""
    return visible("\n".join(_lines(dataset, answers, exported)))


def _lines(
    dataset: Dataset, answers: Sequence[TuneAnswer], exported: Mapping[str, str]
) -> Iterator[str]:
    if not answers:
        yield f"{dataset.name}: nothing was measured, so there is no answer"
        return
    shown = None
    for answer in answers:
        if answer.results is not shown:
            shown = answer.results
            yield from _about(dataset, answer)
        yield ""
        yield from _answer_lines(dataset, answer, exported)


def _about(dataset: Dataset, answer: TuneAnswer) -> Iterator[str]:
    """The machine, and what the user's own arguments reach on it."""
    yield f"\n{dataset.name} on {answer.results.hardware}"
    if answer.own is None:
        yield "your own arguments did not end ok, so gains are unknown"
    else:
        yield f"your own arguments: {_figures(dataset, answer.own)}"


def _figures(dataset: Dataset, configuration: Configuration) -> str:
    speed = number(configuration.samples_per_second)
    size = memory(configuration.memory_bytes)
    return f"{dataset.pick_label(configuration)}: {speed} samples/s, {size}"


def _answer_lines(
    dataset: Dataset, answer: TuneAnswer, exported: Mapping[str, str]
) -> Iterator[str]:
    yield _heading(answer)
    if answer.best is None:
        yield from _nothing_fits(dataset, answer)
    else:
        yield from pick_lines(dataset, answer.recommendation)
    if answer.gain is not None:
        yield f"    {change(answer.gain)} in speed over your own arguments"
    if answer.recommendation.runners_up:
        runner_up = answer.recommendation.runners_up[0].configuration
        yield f"  runner-up: {_figures(dataset, runner_up)}"
    if answer.evidence is not None:
        yield f"  {counts(answer.evidence)}"
        yield f"  {certainty(answer.evidence)}"
        if not answer.evidence.is_settled:
            yield (
                "  the search ended before this was certain; --resume with more --gpu-minutes"
                " continues it"
            )
    if answer.folder_name in exported:
        yield f"  files to train with: {exported[answer.folder_name]}"


def _nothing_fits(dataset: Dataset, answer: TuneAnswer) -> Iterator[str]:
    """That there is no pick, and the measured configuration with the least memory."""
    batch = answer.recommendation.constraints.effective_batch
    if batch is None:
        yield "  no measured configuration fits"
    else:
        yield f"  no measured configuration fits with an effective batch of {batch}"
    measured = answer.results.configurations
    if measured:
        least = min(measured, key=_memory_of)
        yield f"  least memory measured: {_figures(dataset, least)}"
        # Another process's memory may be part of this figure. Flags of the speed do not matter.
        for flag in least.flags:
            if flag.kind in SHARED:
                yield f"    {flags.with_heading(flag)}"


def _memory_of(configuration: Configuration) -> float:
    return configuration.memory_bytes


def _heading(answer: TuneAnswer) -> str:
    where = "in the machine's memory"
    if answer.budget_bytes is not None:
        where = f"within {memory(answer.budget_bytes)}"
    if answer.all_recipes:
        return f"{where}, whatever it trains"
    return where


def to_json(
    dataset: Dataset, answers: Sequence[TuneAnswer], exported: Mapping[str, str]
) -> dict[str, Any]:
    """The answers as JSON values."""
    listed = []
    for answer in answers:
        own = None
        if answer.own is not None:
            own = {
                "trial_id": answer.own.trial_ids[0],
                "samples_per_second": answer.own.samples_per_second,
                "memory_bytes": answer.own.memory_bytes,
            }
        listed.append(
            {
                "budget_bytes": answer.budget_bytes,
                "all_recipes": answer.all_recipes,
                "own": own,
                "gain": answer.gain,
                "evidence": answer.evidence and answer.evidence.to_json(),
                "files": exported.get(answer.folder_name),
                "recommendation": recommendation_json(dataset, answer.recommendation),
            }
        )
    return {"name": dataset.name, "answers": listed}
