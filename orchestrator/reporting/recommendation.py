"""A recommendation as people read it, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.objectives import MILLION
from orchestrator.analysis.recommendation import ConstraintCost, Recommendation
from orchestrator.labels import recipe_label
from orchestrator.reporting import flags
from orchestrator.reporting.configurations import (
    labels_of_trials,
    memory_meaning,
    tie_break_sentence,
)
from orchestrator.reporting.json_output import strict
from orchestrator.reporting.sections.budgets import check_to_json
from orchestrator.reporting.workload import Workload
from orchestrator.units import count, duration, memory, number

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
    return "\n".join(_lines(dataset, recommendation, workload))


def _lines(
    dataset: Dataset, recommendation: Recommendation, workload: Workload | None
) -> Iterator[str]:
    results = dataset.main
    hardware = f" on {results.hardware}" if results else ""
    yield f"{dataset.name}{hardware}{_asked(recommendation)}"
    if results is not None:
        yield f"  memory: {memory_meaning(results)}"
    if len(dataset.environments) > 1:
        others = len(dataset.environments) - 1
        yield f"  environments are never ranked together: {count(others, 'smaller one')} left out"
    yield from _answer(dataset, recommendation, workload)
    if recommendation.runners_up:
        yield "next best, with other techniques:"
        for candidate in recommendation.runners_up:
            line = _line(dataset, recommendation, candidate)
            yield f"  {line}{_short_notes(dataset, candidate)}"
    if recommendation.costs:
        yield "what the constraints cost:"
        yield from (f"  {_cost(dataset, recommendation, cost)}" for cost in recommendation.costs)
    if recommendation.refused:
        refused = count(recommendation.refused, "configuration")
        yield (
            f"left out: {refused} whose losses do not match the reference (--require-loss-parity)"
        )


def _answer(
    dataset: Dataset, recommendation: Recommendation, workload: Workload | None
) -> Iterator[str]:
    best = recommendation.best
    if best is None:
        yield "  no measured configuration keeps these constraints"
        return
    yield f"  {_line(dataset, recommendation, best)}"
    evidence = (*_cap_check(dataset, recommendation), *_tie_breaks(dataset, recommendation))
    yield from (f"    {note}" for note in (*evidence, *notes(dataset, best)))
    if workload is not None:
        yield f"  {_training(recommendation, best, workload)}"


def _asked(recommendation: Recommendation) -> str:
    constraints = recommendation.constraints
    parts = []
    if constraints.effective_batch is not None:
        parts.append(f"effective batch {constraints.effective_batch}")
    if constraints.memory_bytes is not None:
        parts.append(f"within {memory(constraints.memory_bytes)}")
    if constraints.require_loss_parity:
        parts.append("losses that match the reference")
    if constraints.all_recipes:
        parts.append("all training recipes")
    parts.append(_BEST_IN[constraints.objective.name])
    return f": {', '.join(parts)}"


def _cap_check(dataset: Dataset, recommendation: Recommendation) -> Iterator[str]:
    """Whether the best was verified under a memory cap; nothing without a limit below the GPU's."""
    limit, check = recommendation.constraints.memory_bytes, recommendation.check
    device_bytes = dataset.main.device_bytes if dataset.main else 0
    if limit is None or limit >= device_bytes:
        return
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
    sentences = [tie_break_sentence(own, labels) for own in recommendation.comparisons]
    yield from dict.fromkeys(sentences)


def _line(dataset: Dataset, recommendation: Recommendation, candidate: Candidate) -> str:
    """``batch 32×8 · bf16: at least 257 samples/s, at most 22.9 GiB``."""
    configuration = candidate.configuration
    least, most = ("at least ", "at most ") if candidate.is_inferred else ("", "")
    figures = [
        f"{least}{number(configuration.samples_per_second)} samples/s",
        f"{most}{memory(configuration.memory_bytes)}",
    ]
    objective = recommendation.constraints.objective
    figure = recommendation.figure(candidate)
    if objective.name == "host_memory" and figure is not None:
        figures.insert(0, f"{memory(figure)} of host memory")
    elif objective.name != "samples_per_second" and figure is not None:
        figures.insert(0, f"{number(figure)} {objective.unit}")
    return f"{dataset.label(configuration.choices)}: {', '.join(figures)}"


def notes(dataset: Dataset, candidate: Candidate) -> list[str]:
    """What to know before training with a candidate, a sentence each."""
    sentences = []
    if candidate.is_inferred:
        sentences.append(f"inferred from {_inference(candidate)}")
    if _has_other_recipe(dataset.main, candidate):
        recipe = recipe_label(candidate.configuration.training_recipe)
        sentences.append(f"other training recipe than the baseline: {recipe}")
    sentences += [flags.with_heading(flag) for flag in candidate.configuration.flags]
    return sentences


def _short_notes(dataset: Dataset, candidate: Candidate) -> str:
    """The headings of the notes: `` (inferred, unstable)``."""
    headings = ["inferred"] if candidate.is_inferred else []
    if _has_other_recipe(dataset.main, candidate):
        headings.append("other training recipe")
    headings += [flags.heading(flag.kind) for flag in candidate.configuration.flags]
    return f" ({', '.join(dict.fromkeys(headings))})" if headings else ""


def _has_other_recipe(results: EnvironmentResults | None, candidate: Candidate) -> bool:
    return results is not None and candidate.configuration.training_recipe != results.recipe


def _inference(candidate: Candidate) -> str:
    """How the candidate's figures follow from a measurement with less accumulation."""
    accumulation = candidate.measured.row["accumulation"]
    speed = (
        f"accumulation {accumulation}: more accumulation spreads the optimizer's update over more "
        "samples, so the speed is at least the measured one"
    )
    if not candidate.extra_bytes:
        return speed
    extra = memory(candidate.extra_bytes)
    return f"{speed}; gradients are kept between passes, which takes up to {extra} more"


def _cost(dataset: Dataset, recommendation: Recommendation, cost: ConstraintCost) -> str:
    """``with 9.37 GiB instead of 8: 10 % less energy per sample: batch 8 · bf16``."""
    label = dataset.label(cost.candidate.configuration.choices)
    gain = _gain(recommendation, cost)
    return f"{_loosened(recommendation, cost)}: {f'{gain}: ' if gain else ''}{label}"


def _loosened(recommendation: Recommendation, cost: ConstraintCost) -> str:
    """What would be different: ``with 9.37 GiB instead of 8``."""
    constraints, configuration = recommendation.constraints, cost.candidate.configuration
    size = memory(configuration.memory_bytes)
    match cost.constraint:
        case "memory":
            limit, unit = memory(constraints.memory_bytes), size.rpartition(" ")[2]
            return f"with {size} instead of {limit.removesuffix(f' {unit}')}"
        case "less memory":
            return f"with only {size}"
        case "effective_batch":
            batch = configuration.effective_batch
            return f"with an effective batch of {batch} instead of {constraints.effective_batch}"
        case "loss_parity":
            return "without --require-loss-parity"
    recipe = recipe_label(configuration.training_recipe)
    return f"with another training recipe ({recipe})"


def _gain(recommendation: Recommendation, cost: ConstraintCost) -> str:
    """``10 % less energy per sample``; empty where there is no best to compare with."""
    if cost.ratio is None:
        return ""
    noun = _NOUNS[recommendation.constraints.objective.name]
    if cost.ratio >= 2:
        return f"{number(cost.ratio)} times the {noun}"
    percent = round(100 * abs(cost.ratio - 1))
    if not percent:
        return f"the same {noun}"
    return f"{percent} % {'more' if cost.ratio > 1 else 'less'} {noun}"


def _training(recommendation: Recommendation, candidate: Candidate, workload: Workload) -> str:
    """``1,000,000 samples × 3 epochs: 3 h 14 min, 14.6 in price, 1.86 kWh of GPU energy``."""
    parts = [duration(workload.seconds(candidate))]
    price = workload.price(candidate, recommendation.constraints.price_per_hour)
    if price is not None:
        parts.append(f"price {number(price)}")
    energy = workload.kilowatt_hours(candidate)
    if energy is not None:
        parts.append(f"{number(energy)} kWh of GPU energy")
    epochs = "" if workload.epochs == 1 else f" × {workload.epochs:g} epochs"
    not_counted = "start-up, evaluation and saving not counted"
    return f"{workload.samples:,} samples{epochs}: {', '.join(parts)}; {not_counted}"


def to_json(
    dataset: Dataset, recommendation: Recommendation, workload: Workload | None = None
) -> dict[str, Any]:
    """The same as plain JSON values: bytes, seconds, and the objective's own unit."""
    results = dataset.main

    def entry(candidate: Candidate) -> dict[str, Any]:
        return _entry(dataset, recommendation, candidate, workload)

    costs = [
        {"constraint": cost.constraint, "ratio": cost.ratio, **entry(cost.candidate)}
        for cost in recommendation.costs
    ]
    document: dict[str, Any] = strict(
        {
            "run": dataset.name,
            "hardware": results.hardware if results else None,
            "memory_column": results.memory_column if results else None,
            "objective": recommendation.constraints.objective.name,
            "best": entry(recommendation.best) if recommendation.best else None,
            "runners_up": [entry(candidate) for candidate in recommendation.runners_up],
            "costs": costs,
            "left_out_for_loss_parity": recommendation.refused,
            "cap_check": check_to_json(recommendation.check),
            "tie_breaks": [dataclasses.asdict(own) for own in recommendation.comparisons],
        }
    )
    return document


def _entry(
    dataset: Dataset,
    recommendation: Recommendation,
    candidate: Candidate,
    workload: Workload | None,
) -> dict[str, Any]:
    configuration = candidate.configuration
    entry = {
        "configuration": dataset.label(configuration.choices),
        "trial_id": candidate.measured.trial_ids[0],
        "choices": configuration.choices,
        "training_recipe": configuration.training_recipe,
        "accumulation": candidate.accumulation,
        "inferred": candidate.is_inferred,
        "memory_bytes": configuration.memory_bytes,
        "samples_per_second": configuration.samples_per_second,
        recommendation.constraints.objective.name: recommendation.figure(candidate),
        "flags": flags.to_json(configuration.flags),
        "notes": notes(dataset, candidate),
    }
    if workload is not None:
        price_per_hour = recommendation.constraints.price_per_hour
        entry["training"] = {
            "seconds": workload.seconds(candidate),
            "price": workload.price(candidate, price_per_hour),
            "kilowatt_hours": workload.kilowatt_hours(candidate),
        }
    return entry
