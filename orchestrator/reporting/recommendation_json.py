"""A recommendation as plain JSON values: bytes, seconds, and the objective's own unit."""

from __future__ import annotations

import dataclasses
from typing import Any

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.recommendation import Offer, Recommendation
from orchestrator.reporting import flags
from orchestrator.reporting.configurations import check_to_json
from orchestrator.reporting.json_output import strict
from orchestrator.reporting.recommendation_notes import notes
from orchestrator.reporting.workload import Workload


def to_json(
    dataset: Dataset,
    results: EnvironmentResults | None,
    recommendation: Recommendation,
    workload: Workload | None = None,
) -> dict[str, Any]:
    """The best, the next ones, what constraints cost, and the evidence.

    ``results`` are those of the environment that is recommended from; None if nothing ended ok.
    """

    def entry(candidate: Offer | None) -> dict[str, Any] | None:
        if candidate is None or results is None:
            return None
        return _entry(dataset, results, recommendation, candidate, workload)

    costs = []
    for cost in recommendation.costs:
        about = {"constraint": cost.constraint, "ratio": cost.ratio}
        costs.append({**about, **(entry(cost.candidate) or {})})
    nearby = []
    for batch in recommendation.nearby:
        about = {"effective_batch": batch.effective_batch, "ratio": batch.ratio}
        nearby.append({**about, **(entry(batch.candidate) or {})})
    document: dict[str, Any] = strict(
        {
            "run": dataset.name,
            "hardware": None if results is None else results.hardware,
            "memory_column": None if results is None else results.memory_column,
            "objective": recommendation.constraints.objective.name,
            "best": entry(recommendation.best),
            "runners_up": list(map(entry, recommendation.runners_up)),
            "costs": costs,
            "nearby_effective_batches": nearby,
            "left_out_for_loss_parity": len(recommendation.left_out),
            "left_out": {
                "count": len(recommendation.left_out),
                "better": recommendation.left_out_better,
                "best": entry(next(iter(recommendation.left_out), None)),
            },
            "cap_check": check_to_json(recommendation.check),
            "tie_breaks": list(map(dataclasses.asdict, recommendation.comparisons)),
        }
    )
    return document


def _entry(
    dataset: Dataset,
    results: EnvironmentResults,
    recommendation: Recommendation,
    candidate: Offer,
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
        "notes": notes(results, candidate),
    }
    if workload is not None:
        price_per_hour = recommendation.constraints.price_per_hour
        entry["training"] = workload.to_json(candidate, price_per_hour)
    return entry
