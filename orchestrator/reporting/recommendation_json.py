"""A recommendation as plain JSON values: bytes, seconds, and the objective's own unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.recommendation import Recommendation
from orchestrator.reporting import flags
from orchestrator.reporting.json_output import strict
from orchestrator.reporting.recommendation_notes import notes
from orchestrator.reporting.sections.budgets import check_to_json
from orchestrator.reporting.workload import Workload

Entry = Callable[[Candidate], dict[str, Any]]
"""Makes plain values of a candidate."""


def to_json(
    dataset: Dataset, recommendation: Recommendation, workload: Workload | None = None
) -> dict[str, Any]:
    """The answer, the next ones, what constraints cost, and the evidence."""

    def entry(candidate: Candidate) -> dict[str, Any]:
        return _entry(dataset, recommendation, candidate, workload)

    best = None
    if recommendation.best is not None:
        best = entry(recommendation.best)
    document: dict[str, Any] = strict(
        {
            "run": dataset.name,
            **_environment(dataset),
            "objective": recommendation.constraints.objective.name,
            "best": best,
            "runners_up": list(map(entry, recommendation.runners_up)),
            "costs": _costs(recommendation, entry),
            "nearby_effective_batches": _nearby(recommendation, entry),
            "left_out_for_loss_parity": recommendation.left_out.count,
            "left_out": _left_out_json(recommendation, entry),
            "cap_check": check_to_json(recommendation.check),
            "tie_breaks": list(map(dataclasses.asdict, recommendation.comparisons)),
        }
    )
    return document


def _costs(recommendation: Recommendation, entry: Entry) -> list[dict[str, Any]]:
    """What would be better without each constraint."""
    costs = []
    for cost in recommendation.costs:
        about = {"constraint": cost.constraint, "ratio": cost.ratio}
        costs.append({**about, **entry(cost.candidate)})
    return costs


def _nearby(recommendation: Recommendation, entry: Entry) -> list[dict[str, Any]]:
    """What would be better at another effective batch."""
    nearby = []
    for batch in recommendation.nearby:
        about = {"effective_batch": batch.effective_batch, "ratio": batch.ratio}
        nearby.append({**about, **entry(batch.candidate)})
    return nearby


def _left_out_json(recommendation: Recommendation, entry: Entry) -> dict[str, Any]:
    """The candidates with wrong losses: their number, how many are better, and the best."""
    left_out = recommendation.left_out
    best = None
    if left_out.best is not None:
        best = entry(left_out.best)
    return {"count": left_out.count, "better": left_out.better, "best": best}


def _environment(dataset: Dataset) -> dict[str, str | None]:
    """Where the answer was measured; null if nothing ended ok."""
    if dataset.main is None:
        return {"hardware": None, "memory_column": None}
    return {"hardware": dataset.main.hardware, "memory_column": dataset.main.memory_column}


def _entry(
    dataset: Dataset,
    recommendation: Recommendation,
    candidate: Candidate,
    workload: Workload | None,
) -> dict[str, Any]:
    """A candidate's configuration, figures, notes, and what the user's own training takes."""
    configuration = candidate.configuration
    entry = {
        "configuration": dataset.pick_label(configuration),
        "trial_id": candidate.measured.trial_ids[0],
        "choices": configuration.choices,
        "training_recipe": configuration.training_recipe,
        "accumulation": candidate.accumulation,
        "effective_batch": candidate.effective_batch,
        "micro_batch": candidate.micro_batch,
        "inferred": candidate.is_inferred,
        "basis": candidate.basis,
        "loss_check": candidate.measured.loss_state,
        "same_losses": configuration.same_losses,
        "memory_bytes": configuration.memory_bytes,
        "samples_per_second": configuration.samples_per_second,
        recommendation.constraints.objective.name: recommendation.figure(candidate),
        "flags": flags.to_json(configuration.flags),
        "notes": notes(dataset, candidate),
    }
    if workload is not None:
        price_per_hour = recommendation.constraints.price_per_hour
        entry["training"] = workload.to_json(candidate, price_per_hour)
    return entry
