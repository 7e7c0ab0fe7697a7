"""The answer of ``tune``: the pick of each budget, what it gains, and how sure the search is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.recommendation import Constraints, Recommendation
from orchestrator.reporting.recommendation import pick_lines
from orchestrator.reporting.recommendation_json import to_json as recommendation_json
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import change, memory, number

_CERTAIN = 0.0005
"""A possible gain below this share is none."""
_FEW_PERCENT = 0.1
"""Below this share, a gain is written with a decimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneAnswer:
    """What is known of one budget."""

    budget_bytes: int | None
    """None: no budget was named, and the machine's memory is unknown."""
    all_recipes: bool
    """Whether every training recipe could answer, or only that of the user's own arguments."""
    recommendation: Recommendation
    evidence: Mapping[str, Any]
    """What the search considered, ruled out and measured, and what could still be gained.

    ``BudgetAnswer.to_json`` in ``orchestrator.search.answer`` has the keys; empty if the search
    says nothing."""
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
        return f"train-{size}"

    @property
    def gain(self) -> float | None:
        """The pick's speed divided by that of the user's own arguments; None if unknown."""
        if self.best is None or self.own is None:
            return None
        own = self.own.samples_per_second
        return self.best.configuration.samples_per_second / own


def tune_answers(dataset: Dataset) -> list[TuneAnswer]:
    """One for each question of the search, smallest budget first; none if nothing was measured."""
    results = dataset.main
    if results is None:
        return []
    own = None
    for configuration in results.configurations:
        if dict(configuration.choices) == dict(results.baseline):
            own = configuration
    effective_batch = dataset.run.search.get("effective_batch")
    answers = []
    for budget, all_recipes, evidence in _questions(dataset):
        constraints = Constraints(
            memory_bytes=budget, effective_batch=effective_batch, all_recipes=all_recipes
        )
        answers.append(
            TuneAnswer(
                budget_bytes=budget,
                all_recipes=all_recipes,
                recommendation=results.recommend(constraints),
                evidence=evidence,
                own=own,
            )
        )
    return answers


def _questions(dataset: Dataset) -> Iterator[tuple[int | None, bool, Mapping[str, Any]]]:
    """Budget, whether all recipes count, and the evidence."""
    listed = dataset.run.search.get("answers") or []
    for evidence in listed:
        yield evidence["budget_bytes"], evidence["recipe"] == "any", evidence
    if listed:
        return
    # A run that was killed has no summary of its search.
    for budget in dataset.run.budgets or (None,):
        yield budget, False, {}


def describe(dataset: Dataset, answers: Sequence[TuneAnswer], exported: Mapping[str, str]) -> str:
    """Lines of text: for each budget its pick, the runner-up, the gain and the evidence."""
    return visible("\n".join(_lines(dataset, answers, exported)))


def _lines(
    dataset: Dataset, answers: Sequence[TuneAnswer], exported: Mapping[str, str]
) -> Iterator[str]:
    if dataset.main is None or not answers:
        yield f"{dataset.name}: nothing was measured, so there is no answer"
        return
    yield f"\n{dataset.name} on {dataset.main.hardware}"
    own = answers[0].own
    if own is None:
        yield "your own arguments did not end ok, so gains are unknown"
    else:
        yield f"your own arguments: {_figures(dataset, own)}"
    for answer in answers:
        yield ""
        yield from _answer_lines(dataset, answer, exported)


def _figures(dataset: Dataset, configuration: Configuration) -> str:
    speed = number(configuration.samples_per_second)
    size = memory(configuration.memory_bytes)
    return f"{dataset.pick_label(configuration)}: {speed} samples/s, {size}"


def _answer_lines(
    dataset: Dataset, answer: TuneAnswer, exported: Mapping[str, str]
) -> Iterator[str]:
    yield _heading(answer)
    yield from pick_lines(dataset, answer.recommendation)
    if answer.gain is not None:
        yield f"    {change(answer.gain)} in speed over your own arguments"
    if answer.recommendation.runners_up:
        runner_up = answer.recommendation.runners_up[0].configuration
        yield f"  runner-up: {_figures(dataset, runner_up)}"
    if answer.evidence:
        yield f"  {_counts(answer.evidence)}"
        yield f"  {_certainty(answer.evidence)}"
    if answer.folder_name in exported:
        yield f"  files to train with: {exported[answer.folder_name]}"


def _heading(answer: TuneAnswer) -> str:
    where = "in the machine's memory"
    if answer.budget_bytes is not None:
        where = f"within {memory(answer.budget_bytes)}"
    if answer.all_recipes:
        return f"{where}, whatever it trains"
    return where


def _counts(evidence: Mapping[str, Any]) -> str:
    return (
        f"considered {evidence['considered']:,}, ruled out by prediction {evidence['ruled_out']:,},"
        f" measured {evidence['measured']:,}"
    )


def _certainty(evidence: Mapping[str, Any]) -> str:
    """The most that anything unmeasured could still gain, with its probability."""
    at_most = evidence["gain_at_most"]
    sure = f"{100 * evidence['certainty']:.3g} %"
    if evidence["pick"] is None:
        if evidence["is_answered"]:
            return f"nothing considered fits, with a probability of at least {sure}"
        return "nothing measured fits; whether anything does is not known"
    if at_most is None or not math.isfinite(at_most):
        return "how much faster anything unmeasured could be is not known"
    return (
        f"anything unmeasured is faster by at most {100 * at_most:.2g} %, with {sure} probability"
    )


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
                "evidence": dict(answer.evidence),
                "files": exported.get(answer.folder_name),
                "recommendation": recommendation_json(dataset, answer.recommendation),
            }
        )
    return {"name": dataset.name, "answers": listed}
