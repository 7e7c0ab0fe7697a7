"""What to know before training with a candidate of a recommendation."""

from __future__ import annotations

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.labels import recipe_label
from orchestrator.reporting import flags
from orchestrator.units import memory


def notes(dataset: Dataset, candidate: Candidate) -> list[str]:
    """What to know before training with a candidate, a sentence each."""
    sentences = []
    if candidate.is_inferred:
        sentences.append(f"inferred from {_inference(candidate)}")
    if _has_other_recipe(dataset.main, candidate):
        recipe = recipe_label(candidate.configuration.training_recipe)
        sentences.append(f"other training recipe than the baseline: {recipe}")
    sentences += map(flags.with_heading, candidate.configuration.flags)
    return sentences


def short_notes(dataset: Dataset, candidate: Candidate) -> str:
    """The headings of the notes: `` (inferred, unstable)``."""
    headings = []
    if candidate.is_inferred:
        headings.append("inferred")
    if _has_other_recipe(dataset.main, candidate):
        headings.append("other training recipe")
    headings += [flags.heading(flag.kind) for flag in candidate.configuration.flags]
    if not headings:
        return ""
    return f" ({', '.join(dict.fromkeys(headings))})"


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
