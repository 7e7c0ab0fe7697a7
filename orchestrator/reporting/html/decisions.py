"""The decisions that the page shows: what ``recommend`` answers at every memory budget.

The page's script looks an answer up in this table. It never decides by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.spec import TrainingRecipe
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.gain import Defaults, Gain
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.recommendation import Constraints
from orchestrator.analysis.recommendation.candidates import Candidate
from orchestrator.reporting.configurations import recipe_name
from orchestrator.reporting.html.measures import short
from orchestrator.reporting.recommendation_notes import notes
from orchestrator.reporting.sections.headline import comparison, headline

MAX_RANKED = 100_000
"""Candidates that a page ranks in all; it holds no answer to questions beyond them. A typical run
ranks a tenth of it; ranking 20,000 configurations takes about half a second.
"""
MAX_BATCHES = 16
MAX_OFFERED_BATCH = 1024
_ANY_PRICE = 1.0
"""The order by cost does not depend on the price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What the page's controls ask."""

    objective: str
    effective_batch: int | None
    recipe: TrainingRecipe | None
    """The one that is ranked; None: all together."""

    def key(self, recipes: Sequence[TrainingRecipe]) -> str:
        """Its name in the page's data: ``samples_per_second/any/0``, with the recipe's index."""
        batch = "any"
        if self.effective_batch is not None:
            batch = str(self.effective_batch)
        ranked = "mixed"
        if self.recipe is not None:
            ranked = str(recipes.index(self.recipe))
        return f"{self.objective}/{batch}/{ranked}"

    @property
    def constraints(self) -> Constraints:
        """The same for ``recommend``, without a memory budget."""
        return Constraints(
            effective_batch=self.effective_batch,
            all_recipes=self.recipe is None,
            objective=OBJECTIVES[self.objective],
            price_per_hour=_ANY_PRICE,
        )


def decisions(
    dataset: Dataset,
    results: EnvironmentResults,
    recipes: Sequence[TrainingRecipe],
    index_of: Mapping[str, int],
    *,
    limit: int = MAX_RANKED,
) -> dict[str, Any]:
    """``steps``: question -> its decisions by rising memory budget, as (least bytes, candidate).

    ``candidates`` holds what the steps' second numbers stand for, each once. For a budget the last
    decision counts whose least bytes are not above it; below the first, nothing fits. ``recipes``
    and ``index_of`` number recipes and trials as the page's data does. Questions come by
    importance, and those that the page has no room for are left out.
    """
    answers: dict[str, list[tuple[int, int]]] = {}
    # Most questions share their candidates, so each is held once.
    candidates: dict[str, int] = {}
    defaults = Defaults(results)
    for question in _asked(results, limit):
        steps = []
        ranking = results.rankings.under(question.constraints, question.recipe)
        for step in ranking.decision_steps():
            decision = plain_decision(dataset, results, step.candidate, defaults)
            decision["point"] = index_of.get(step.candidate.measured.trial_ids[0])
            number = candidates.setdefault(json.dumps(decision), len(candidates))
            steps.append((step.least_bytes, number))
        answers[question.key(recipes)] = steps
    return {"steps": answers, "candidates": list(map(json.loads, candidates))}


def _asked(results: EnvironmentResults, limit: int) -> list[Question]:
    """The questions that the page has room for: at most ``limit`` candidates in all."""
    # Whole questions only: half an answer would be a wrong one.
    left = max(1, limit // max(1, len(results.configurations)))
    return list(_questions(results))[:left]


def decision_at(
    decisions: Mapping[str, Any], key: str, budget: float | None
) -> Mapping[str, Any] | None:
    """The candidate of a question at a budget in bytes, as the page's script looks it up."""
    fitting = [
        index for least, index in decisions["steps"][key] if budget is None or least <= budget
    ]
    if not fitting:
        return None
    candidate: Mapping[str, Any] = decisions["candidates"][fitting[-1]]
    return candidate


def _questions(results: EnvironmentResults) -> Iterator[Question]:
    """Most asked first: the ranked recipe, then all together, then each other one."""
    others = [recipe for recipe in results.fronts if recipe != results.recipe]
    # With a single recipe there is nothing to mix.
    together: list[TrainingRecipe | None] = []
    if others:
        together.append(None)
    for recipes in ([results.recipe], together, others):
        for recipe in recipes:
            for objective in _objectives(results):
                for batch in (None, *offered_batches(results)):
                    yield Question(objective=objective, effective_batch=batch, recipe=recipe)


def _objectives(results: EnvironmentResults) -> list[str]:
    """The objectives with any figure."""
    measured = []
    for name, objective in OBJECTIVES.items():
        figures = [objective.of(own, _ANY_PRICE) for own in results.configurations]
        if figures.count(None) < len(figures):
            measured.append(name)
    return measured


def offered_batches(results: EnvironmentResults) -> Sequence[int]:
    """Effective batches that the page offers: those measured, and powers of two above them.

    The latter can be reached by accumulation.
    """
    measured = sorted({own.effective_batch for own in results.configurations})
    # Every n-th if there are very many, rounded up.
    batches = measured[:: -(-len(measured) // MAX_BATCHES) or 1]
    # Above what was measured, powers of two are what people ask for.
    power = 1
    while power <= MAX_OFFERED_BATCH and len(batches) < MAX_BATCHES:
        if power > measured[-1]:
            batches.append(power)
        power *= 2
    return batches


def plain_decision(
    dataset: Dataset,
    results: EnvironmentResults,
    candidate: Candidate,
    defaults: Defaults,
) -> dict[str, Any]:
    """A candidate as the page shows it: its label, figures, notes, and gain over the default."""
    configuration = candidate.configuration
    figures = {}
    for name, objective in OBJECTIVES.items():
        figures[name] = short(objective.of(configuration, None))
    return {
        "label": dataset.pick_label(configuration),
        "memory": configuration.memory_bytes,
        "figures": figures,
        "inferred": int(candidate.is_inferred),
        "bounds": int(candidate.has_bounds),
        "recipe": recipe_name(results, configuration.training_recipe),
        "otherRecipe": int(configuration.training_recipe != results.recipe),
        "notes": notes(results, candidate),
        **_over_default(dataset, defaults.gain(candidate)),
    }


def _over_default(dataset: Dataset, gain: Gain | None) -> dict[str, Any]:
    """The gain over the default configuration; empty texts if it has none to be compared with."""
    if gain is None:
        return {"gain": "", "faster": 0, "default": ""}
    is_faster = gain.speed_ratio >= 1
    return {
        "gain": headline(gain),
        "faster": int(is_faster),
        "default": comparison(dataset, gain),
    }
