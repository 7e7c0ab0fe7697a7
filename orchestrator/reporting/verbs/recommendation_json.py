"""What ``recommend --json`` prints: the best, the next ones, and the evidence."""

from dataclasses import asdict
from typing import Any

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.recommendation import Offer, Recommendation
from orchestrator.reporting import flags
from orchestrator.reporting.configurations import check_to_json
from orchestrator.reporting.json_output import strict
from orchestrator.reporting.recommendation_notes import notes
from orchestrator.reporting.verbs.recommendation import Workload


def to_json(
    dataset: Dataset,
    results: EnvironmentResults | None,
    recommendation: Recommendation,
    workload: Workload | None = None,
) -> dict[str, Any]:
    """The best, the next ones, what constraints cost, and the evidence: bytes and seconds.
    ``results`` are those of the environment that is recommended from; None if nothing ended ok."""

    def entry(candidate: Offer | None) -> dict[str, Any]:
        # Without results there is no candidate.
        if candidate is None or results is None:
            return {}
        return _entry(dataset, results, recommendation, candidate, workload)

    return strict(
        {
            "run": dataset.name,
            "hardware": results and results.hardware,
            "memory_column": results and results.memory_column,
            "objective": recommendation.constraints.objective.name,
            "best": entry(recommendation.best) or None,
            "runners_up": list(map(entry, recommendation.runners_up)),
            "costs": [
                {"constraint": own.constraint, "ratio": own.ratio, **entry(own.candidate)}
                for own in recommendation.costs
            ],
            "nearby_effective_batches": [
                {"effective_batch": own.effective_batch, "ratio": own.ratio, **entry(own.candidate)}
                for own in recommendation.nearby
            ],
            "gpu_counts": [
                {
                    "gpus": own.gpus,
                    "samples_per_second_per_gpu": own.samples_per_second_per_gpu,
                    "scaling_efficiency": own.efficiency,
                    **entry(own.best),
                }
                for own in recommendation.gpu_counts
            ],
            "left_out_for_loss_parity": len(recommendation.left_out),
            "left_out": {
                "count": len(recommendation.left_out),
                "better": recommendation.left_out_better,
                "best": entry(next(iter(recommendation.left_out), None)) or None,
            },
            "other_samples": list(map(entry, recommendation.other_samples)),
            "not_ranked": {
                **recommendation.not_ranked,
                "without_figures": results.without_figures if results else 0,
            },
            "cap_check": check_to_json(recommendation.check),
            "tie_breaks": list(map(asdict, recommendation.comparisons)),
        }
    )


def _entry(
    dataset: Dataset,
    results: EnvironmentResults,
    recommendation: Recommendation,
    candidate: Offer,
    workload: Workload | None,
) -> dict[str, Any]:
    configuration = candidate.configuration
    objective = recommendation.constraints.objective
    entry = {
        "configuration": dataset.pick_label(configuration),
        "trial_id": candidate.measured.trial_ids[0],
        "choices": configuration.choices,
        "training_recipe": configuration.training_recipe,
        "accumulation": candidate.accumulation,
        "effective_batch": candidate.effective_batch,
        "micro_batch": candidate.micro_batch,
        "inferred": candidate.is_inferred,
        "loss_check": candidate.measured.loss_state,
        "same_losses": configuration.same_losses,
        "memory_bytes": configuration.memory_bytes,
        "samples_per_second": configuration.samples_per_second,
        objective.name: recommendation.figure(candidate),
        f"{objective.name}_error95": objective.error95(configuration),
        "flags": flags.to_json(configuration.flags),
        "notes": notes(results, candidate),
    }
    if workload is not None:
        price_per_hour = recommendation.constraints.price_per_hour
        entry["training"] = workload.to_json(candidate, price_per_hour)
    return entry
