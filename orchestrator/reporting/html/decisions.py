"""The decisions that the page shows: what ``recommend`` answers at every budget, and details.

The page's script looks a decision up in this table. It never decides by itself.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD
from jobs.anatomy_record import Anatomy
from jobs.spec import TrainingRecipe
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.explanation.two_trials import NotExplainableError, explain
from orchestrator.analysis.gain_over_default import Defaults, has_default_techniques
from orchestrator.analysis.objectives import OBJECTIVES, Objective
from orchestrator.analysis.recommendation import Constraints
from orchestrator.analysis.recommendation.offers import Offer
from orchestrator.analysis.recommendation.ranking import Ranking
from orchestrator.reporting.configurations import recipe_name
from orchestrator.reporting.recommendation_notes import notes
from orchestrator.reporting.sections.anatomy import anatomies_of, asked_first
from orchestrator.reporting.sections.headline import comparison, headline
from orchestrator.reporting.verbs.explanation import render
from orchestrator.units import MIB, number

MAX_RANKED = 100_000
"""Candidates that a page ranks in all. A typical run ranks a tenth of it."""
MAX_BATCHES = 16
_ANY_PRICE = 1.0
"""The order by cost does not depend on the price."""
Query = tuple[str, int | None, TrainingRecipe | None]
"""Objective, effective batch, and the recipe that is ranked (None: all together)."""


def key_of(query: Query, recipes: Sequence[TrainingRecipe]) -> str:
    """A query's name in the page's data: ``samples_per_second/any/0``, with the recipe's index."""
    objective, batch, recipe = query
    ranked = "mixed" if recipe is None else recipes.index(recipe)
    return f"{objective}/{batch or 'any'}/{ranked}"


def decisions(
    dataset: Dataset,
    results: EnvironmentResults,
    recipes: Sequence[TrainingRecipe],
    index_of: Mapping[str, int],
    *,
    limit: int = MAX_RANKED,
) -> dict[str, Any]:
    """``steps``: query -> its decisions by rising memory budget, as (least bytes, number in
    ``candidates``). For a budget the last decision counts whose least bytes are not above it.
    ``recipes`` and ``index_of`` number recipes and trials. Queries without room are left out."""
    steps: dict[str, list[tuple[int, int]]] = {}
    numbers: dict[str, int] = {}
    number_of: dict[int, int] = {}  # the same for a candidate that an earlier query decided on
    defaults = Defaults(results)
    # Whole queries only: half a table of decisions would hold wrong ones.
    room = max(1, limit // len(results.configurations))
    for query in itertools.islice(_queries(results), room):
        listed = steps[key_of(query, recipes)] = []
        for step in _ranking(results, query).decision_steps():
            # Rankings keep their candidates, so each is known by its identity.
            if id(step.candidate) not in number_of:
                decision = plain_decision(dataset, results, step.candidate, defaults)
                decision["point"] = index_of.get(step.candidate.measured.trial_ids[0])
                text = json.dumps(decision)
                number_of[id(step.candidate)] = numbers.setdefault(text, len(numbers))
            listed.append((step.least_bytes, number_of[id(step.candidate)]))
    return {"steps": steps, "candidates": list(map(json.loads, numbers))}


def _ranking(results: EnvironmentResults, query: Query) -> Ranking:
    objective, batch, recipe = query
    constraints = Constraints(
        effective_batch=batch,
        all_recipes=recipe is None,
        objective=OBJECTIVES[objective],
        price_per_hour=_ANY_PRICE,
    )
    return results.rankings.under(constraints, recipe)


def decision_at(
    decisions: Mapping[str, Any], key: str, budget: float | None
) -> dict[str, Any] | None:
    """The candidate of a query at a budget in bytes, as the page's script looks it up."""
    steps = decisions["steps"][key]
    fitting = [index for least, index in steps if budget is None or least <= budget]
    return decisions["candidates"][fitting[-1]] if fitting else None


def _queries(results: EnvironmentResults) -> Iterator[Query]:
    """Most asked first: the ranked recipe, then all together, then each other one."""
    others = [recipe for recipe in results.fronts if recipe != results.recipe]
    recipes = [results.recipe, *([None] if others else []), *others]
    objectives = [
        name
        for name, objective in OBJECTIVES.items()
        if is_asked(objective, len(results.workload_fronts))
        and any(objective.of(own, _ANY_PRICE) is not None for own in results.configurations)
    ]
    batches = [None, *offered_batches(results)]
    for recipe, objective_name, batch in itertools.product(recipes, objectives, batches):
        yield objective_name, batch, recipe


def is_asked(objective: Objective, workloads: int) -> bool:
    """Whether an objective orders configurations of so many kinds of samples as no other does."""
    # Of samples of one kind, tokens per second are samples per second times a constant.
    return workloads > 1 or not objective.of_any_samples


def offered_batches(results: EnvironmentResults) -> list[int]:
    """Effective batches that the page offers: those measured, and powers of two above them."""
    measured = sorted({own.effective_batch for own in results.configurations})
    batches = measured[:: -(-len(measured) // MAX_BATCHES)]
    # Reached by accumulation.
    powers = [2**exponent for exponent in range(11) if 2**exponent > measured[-1]]
    return [*batches, *powers][: max(MAX_BATCHES, len(batches))]


def plain_decision(
    dataset: Dataset, results: EnvironmentResults, candidate: Offer, defaults: Defaults
) -> dict[str, Any]:
    """A candidate as the page shows it: its label, figures, notes, and gain over the default."""
    configuration, gain = candidate.configuration, defaults.gain(candidate)
    return {
        "label": dataset.pick_label(configuration),
        "memory": configuration.memory_bytes,
        "figures": {
            name: short(objective.of(configuration, None)) for name, objective in OBJECTIVES.items()
        },
        "inferred": int(candidate.is_inferred),
        "recipe": recipe_name(results, configuration.training_recipe),
        "otherRecipe": int(configuration.training_recipe != results.recipe),
        "notes": notes(results, candidate),
        "gain": "" if gain is None else headline(gain),
        "faster": int(gain is not None and gain.speed_ratio >= 1),
        "default": "" if gain is None else comparison(dataset, gain),
        "defaultMemory": 0 if gain is None else gain.default.memory_bytes,
    }


def short(value: Any) -> Any:
    """A float rounded to seven significant digits, more than any measurement is accurate to."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


MAX_ANATOMIES = 200
"""A page holds at most this many anatomies of about 10 kB. ``anatomy.parquet`` holds all."""
MAX_EXPLAINED = 10
"""Configurations of an environment whose pairs are explained: 45 pairs of about 1.5 kB each."""
_PARTS: tuple[str, ...] = ("memory", "operations", "modules", "step")


def anatomies(dataset: Dataset, index_of: Mapping[str, int]) -> dict[str, Any]:
    """Index of a configuration -> its anatomy: front and picks first, then the others."""
    wanted = [own for results in dataset.environments for own in asked_first(results)]
    shown: dict[str, Any] = {}
    for trial_id, anatomy in anatomies_of(dataset, wanted).items():
        if trial_id in index_of and len(shown) < MAX_ANATOMIES:
            shown[str(index_of[trial_id])] = plain_anatomy(anatomy)
    return shown


def plain_anatomy(anatomy: Anatomy) -> dict[str, Any]:
    """Each part as (name, value) pairs, two ratios as text, and the timeline."""
    parts: dict[str, Any] = {}
    for part in _PARTS:
        # Six digits are more than a profiler's precision.
        values = anatomy.values(part).items()
        parts[part] = [(name, float(f"{value:.6g}")) for name, value in values if value > 0]
    timeline = anatomy.timeline
    ratio = anatomy.values("phases").get(BACKWARD_TO_FORWARD)
    mfu = anatomy.values("efficiency").get("MFU")
    return {
        **parts,
        "ratios": [
            "" if ratio is None else number(ratio),
            "" if mfu is None else f"{100 * mfu:.1f} %",
        ],
        # A tenth of a MiB and five digits of a second are below a pixel of the drawn timeline.
        "timeline": {
            "seconds": [float(f"{seconds:.5g}") for seconds in timeline.seconds],
            "mib": {
                name: [round(nbytes / MIB, 1) for nbytes in samples]
                for name, samples in timeline.held.items()
            },
            "phases": list(map(list, timeline.phases)),
        },
    }


def explained_pairs(dataset: Dataset, index_of: Mapping[str, int]) -> dict[str, str]:
    """``"3,7"`` -> the explanation of row 7 against row 3, as the verb ``explain`` prints it.
    ``index_of`` maps a trial to its row of the page's data. The smaller index is always A."""
    explanations = {}
    for results in dataset.environments:
        defaults = [own for own in results.configurations if has_default_techniques(results, own)]
        front = results.front
        ordered = [*results.picks, *front[:1], *front[-1:], *defaults[:1], *front]
        often_compared = list(dict.fromkeys(own.trial_ids[0] for own in ordered))[:MAX_EXPLAINED]
        indices = {index_of[own]: own for own in often_compared if own in index_of}
        for first, second in itertools.combinations(sorted(indices), 2):
            try:
                explanation = explain(dataset, indices[first], indices[second])
            except (NotExplainableError, LookupError):
                continue
            explanations[f"{first},{second}"] = render(explanation)
    return explanations
