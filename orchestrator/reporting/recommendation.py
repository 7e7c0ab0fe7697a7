"""A recommendation as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.objectives import MILLION
from orchestrator.analysis.recommendation import ConstraintCost, NearbyBatch, Recommendation
from orchestrator.labels import recipe_label
from orchestrator.reporting.configurations import (
    labels_of_trials,
    memory_meaning,
    tie_break_sentence,
)
from orchestrator.reporting.recommendation_notes import notes, short_notes
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.reporting.workload import Workload
from orchestrator.units import count, memory, number

_BEST_IN: Mapping[str, str] = {
    "samples_per_second": "most samples/s",
    "joules_per_sample": "least energy per sample",
    "dollars_per_million": f"least cost per {MILLION:,} samples",
    "host_memory": "least host memory",
}
"""Objective -> what the best has."""
_NOUNS: Mapping[str, str] = {
    "samples_per_second": "samples/s",
    "joules_per_sample": "energy per sample",
    "dollars_per_million": f"cost per {MILLION:,} samples",
    "host_memory": "host memory",
}
"""Objective -> what there is more or less of."""


def render(
    dataset: Dataset, recommendation: Recommendation, workload: Workload | None = None
) -> str:
    """Lines of text: the answer, its notes, the next ones, and what each constraint costs."""
    return visible("\n".join(_lines(dataset, recommendation, workload)))


def _lines(
    dataset: Dataset, recommendation: Recommendation, workload: Workload | None
) -> Iterator[str]:
    yield from _question(dataset, recommendation)
    if len(dataset.environments) > 1:
        others = len(dataset.environments) - 1
        yield f"  environments are never ranked together: {count(others, 'smaller one')} left out"
    yield from _answer(dataset, recommendation, workload)
    yield from _alternatives(dataset, recommendation)
    yield from left_out_lines(dataset, recommendation)


def _alternatives(dataset: Dataset, recommendation: Recommendation) -> Iterator[str]:
    """What else a reader may want: other techniques, other constraints."""
    # The next sets of techniques, for readers who cannot use the best one.
    if recommendation.runners_up:
        yield "next best, with other techniques:"
        for candidate in recommendation.runners_up:
            line = _line(dataset, recommendation, candidate)
            yield f"  {line}{short_notes(dataset, candidate)}"
    if recommendation.nearby:
        yield "near this effective batch:"
        for nearby in recommendation.nearby:
            yield f"  {_nearby(dataset, recommendation, nearby)}"
    if recommendation.costs:
        yield "what the constraints cost:"
        for cost in recommendation.costs:
            yield f"  {_cost(dataset, recommendation, cost)}"


def _question(dataset: Dataset, recommendation: Recommendation) -> Iterator[str]:
    """What was asked of which run, and what its memory figures mean."""
    results = dataset.main
    asked = _asked(recommendation)
    if results is None:
        yield f"{dataset.name}{asked}"
        return
    yield f"{dataset.name} on {results.hardware}{asked}"
    yield f"  memory: {memory_meaning(results)}"


def _answer(
    dataset: Dataset, recommendation: Recommendation, workload: Workload | None
) -> Iterator[str]:
    best = recommendation.best
    if best is None:
        yield "  no measured configuration keeps these constraints"
        return
    yield f"  {_line(dataset, recommendation, best)}"
    lines = [*_cap_check(dataset, recommendation), *_tie_breaks(dataset, recommendation)]
    lines += notes(dataset, best)
    for line in lines:
        yield f"    {line}"
    if workload is not None:
        price_per_hour = recommendation.constraints.price_per_hour
        yield f"  {workload.describe(best, price_per_hour)}"


def pick_lines(dataset: Dataset, recommendation: Recommendation) -> Iterator[str]:
    """The best candidate with its notes, or that there is none; indented lines."""
    yield from _answer(dataset, recommendation, None)


def _asked(recommendation: Recommendation) -> str:
    constraints = recommendation.constraints
    parts = []
    if constraints.effective_batch is not None:
        parts.append(f"effective batch {constraints.effective_batch}")
    if constraints.memory_bytes is not None:
        parts.append(f"within {memory(constraints.memory_bytes)}")
    if constraints.all_recipes:
        parts.append("all training recipes")
    parts.append(_BEST_IN[constraints.objective.name])
    return f": {', '.join(parts)}"


def _cap_check(dataset: Dataset, recommendation: Recommendation) -> Iterator[str]:
    """Whether the best was verified under a memory cap; nothing without a limit below the GPU's."""
    limit = recommendation.constraints.memory_bytes
    if limit is None or dataset.main is None or limit >= dataset.main.device_bytes:
        return
    check = recommendation.check
    if check is None:
        cap = memory(limit)
        yield f"fits by its uncapped peak; not verified under a memory cap of {cap}"
        return
    figures = f"{number(check.samples_per_second)} samples/s, {memory(check.memory_bytes)}"
    yield (
        f"verified under a memory cap of {memory(check.budget_bytes)}: {figures} (trial "
        f"{check.trial_id})"
    )


def _tie_breaks(dataset: Dataset, recommendation: Recommendation) -> Iterator[str]:
    """The tie-breaks between the best and configurations of about its speed."""
    if dataset.main is None or not recommendation.comparisons:
        return
    labels = labels_of_trials(dataset, dataset.main.configurations)
    sentences = [
        tie_break_sentence(comparison, labels) for comparison in recommendation.comparisons
    ]
    yield from dict.fromkeys(sentences)


def _line(dataset: Dataset, recommendation: Recommendation, candidate: Candidate) -> str:
    """``batch 32×8 · bf16: at least 257 samples/s, at most 22.9 GiB``."""
    configuration = candidate.configuration
    speed = f"{number(configuration.samples_per_second)} samples/s"
    size = memory(configuration.memory_bytes)
    # An inferred figure is a bound and not a measurement, and the text says so.
    figures = [speed, size]
    if candidate.has_bounds:
        figures = [f"at least {speed}", f"at most {size}"]
    # The figure that the answer is best in comes first.
    figures = [*_objective_figure(recommendation, candidate), *figures]
    trial_id = candidate.measured.trial_ids[0]
    return f"{dataset.pick_label(configuration)}: {', '.join(figures)}, trial {trial_id}"


def _objective_figure(recommendation: Recommendation, candidate: Candidate) -> Iterator[str]:
    """The figure of the objective; nothing for the speed, which every line has."""
    objective = recommendation.constraints.objective
    figure = recommendation.figure(candidate)
    if figure is None or objective.name == "samples_per_second":
        return
    if objective.name == "host_memory":
        yield f"{memory(figure)} of host memory"
    else:
        yield f"{number(figure)} {objective.unit}"


def _nearby(dataset: Dataset, recommendation: Recommendation, nearby: NearbyBatch) -> str:
    """``256 instead of 257: 9.89 times the samples/s: batch 32×8 · bf16: at least 299 ...``."""
    wanted = recommendation.constraints.effective_batch
    batches = f"{nearby.effective_batch} instead of {wanted}"
    line = _line(dataset, recommendation, nearby.candidate)
    parts = [batches, _gain(recommendation, nearby.ratio), line]
    return ": ".join(part for part in parts if part) + short_notes(dataset, nearby.candidate)


def left_out_lines(dataset: Dataset, recommendation: Recommendation) -> Iterator[str]:
    """How many configurations were left out because they train something else."""
    left_out = recommendation.left_out
    if left_out.best is None:
        return
    what = _left_out_count(recommendation)
    line = _line(dataset, recommendation, left_out.best)
    notes_of_best = short_notes(dataset, left_out.best)
    yield f"left out: {what} whose losses do not match the reference; the best of them:"
    yield f"  {line}{notes_of_best}"


def _left_out_count(recommendation: Recommendation) -> str:
    """``3 configurations, 2 of them better,``."""
    left_out = recommendation.left_out
    if recommendation.best is None:
        return count(left_out.count, "configuration")
    if left_out.better == left_out.count:
        return count(left_out.count, "better configuration")
    better = left_out.better or "none"
    return f"{count(left_out.count, 'configuration')}, {better} of them better,"


def _cost(dataset: Dataset, recommendation: Recommendation, cost: ConstraintCost) -> str:
    """``with 9.37 GiB instead of 8: 10 % less energy per sample: batch 8 · bf16``."""
    label = dataset.pick_label(cost.candidate.configuration)
    parts = [_loosened(recommendation, cost), _gain(recommendation, cost.ratio), label]
    return ": ".join(part for part in parts if part)


def _loosened(recommendation: Recommendation, cost: ConstraintCost) -> str:
    """What would be different: ``with 9.37 GiB instead of 8``."""
    constraints = recommendation.constraints
    configuration = cost.candidate.configuration
    size = memory(configuration.memory_bytes)
    match cost.constraint:
        case "memory":
            # The unit is said once if both sizes have the same.
            unit = size.rpartition(" ")[2]
            limit = memory(constraints.memory_bytes).removesuffix(f" {unit}")
            return f"with {size} instead of {limit}"
        case "less memory":
            return f"with only {size}"
        case "effective_batch":
            batch = configuration.effective_batch
            return f"with an effective batch of {batch} instead of {constraints.effective_batch}"
    recipe = recipe_label(configuration.training_recipe)
    return f"with another training recipe ({recipe})"


def _gain(recommendation: Recommendation, ratio: float | None) -> str:
    """``10 % less energy per sample``; empty if there is no best to compare with."""
    if ratio is None:
        return ""
    noun = _NOUNS[recommendation.constraints.objective.name]
    # A doubling is easier to grasp as a factor, smaller gains as whole percent.
    if ratio >= 2:
        return f"{number(ratio)} times the {noun}"
    percent = round(100 * (ratio - 1))
    if percent > 0:
        return f"{percent} % more {noun}"
    if percent < 0:
        return f"{-percent} % less {noun}"
    return f"the same {noun}"
