"""What to know before training with a candidate of a recommendation."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.analysis.accumulation import Basis, Candidate
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.loss_parity import CheckState
from orchestrator.labels import recipe_label
from orchestrator.reporting import flags
from orchestrator.storage.tables.rows import recipe_of
from orchestrator.units import count, memory, number


def notes(dataset: Dataset, candidate: Candidate) -> list[str]:
    """What to know before training with a candidate, a sentence each."""
    sentences = []
    if candidate.is_inferred:
        sentences.append(f"inferred from {_inference(candidate)}")
    if _has_other_recipe(dataset.main, candidate):
        recipe = recipe_label(candidate.configuration.training_recipe)
        sentences.append(f"other training recipe than the baseline: {recipe}")
    sentences += _losses(candidate)
    sentences += map(flags.with_heading, candidate.configuration.flags)
    return sentences


def short_notes(dataset: Dataset, candidate: Candidate) -> str:
    """The headings of the notes: `` (inferred, unstable)``."""
    headings = []
    if candidate.basis is Basis.WRONG_LOSS_SCALE:
        headings.append("inferred, figures of a trial with a wrong loss scale")
    elif candidate.is_inferred:
        headings.append("inferred")
    if _has_other_recipe(dataset.main, candidate):
        headings.append("other training recipe")
    loss_state = candidate.measured.loss_state
    if candidate.configuration.same_losses is not None and loss_state is not CheckState.MISMATCH:
        headings.append("same losses as the reference, measured")
    elif loss_state is CheckState.NOT_CHECKED:
        headings.append("losses not checked")
    headings += [flags.heading(flag.kind) for flag in candidate.configuration.flags]
    if not headings:
        return ""
    return f" ({', '.join(dict.fromkeys(headings))})"


def _has_other_recipe(results: EnvironmentResults | None, candidate: Candidate) -> bool:
    return results is not None and candidate.configuration.training_recipe != results.recipe


def _losses(candidate: Candidate) -> Iterator[str]:
    """What is known of the losses: the measure that ranks them, or that nothing was checked."""
    configuration = candidate.configuration
    same_losses = configuration.same_losses
    if same_losses is not None:
        declared = recipe_label(recipe_of(configuration.row))
        pairs = count(same_losses.pairs, "pair")
        yield (
            f"same losses as the reference, measured: {declared} changes them by at most "
            f"{100 * same_losses.difference:.2g} % ({pairs} of trials, "
            f"{count(same_losses.steps, 'step')})"
        )
    elif candidate.measured.loss_state is CheckState.NOT_CHECKED:
        yield f"losses not checked: {_why_not_checked(candidate)}"
    if candidate.suspicion is not None:
        yield f"{flags.with_heading(candidate.suspicion)}; an exported train.py corrects that"


def _why_not_checked(candidate: Candidate) -> str:
    check = candidate.measured.loss_check
    if check.bound is None:
        return "there is no reference to compare them with"
    steps = count(check.steps, "step")
    return f"over {steps} even a loss of twice the reference's could be chance"


def _inference(candidate: Candidate) -> str:
    """How the candidate's figures follow from measurements of other batches."""
    match candidate.basis:
        case Basis.WRONG_LOSS_SCALE:
            return _from_wrong_scale(candidate)
        case Basis.BETWEEN:
            return _from_neighbours(candidate)
    return _from_less_accumulation(candidate)


def _from_less_accumulation(candidate: Candidate) -> str:
    accumulation = candidate.measured.row["accumulation"]
    speed = (
        f"accumulation {accumulation}: more accumulation spreads the optimizer's update over more "
        "samples, so the speed is at least the measured one"
    )
    if not candidate.extra_bytes:
        return speed
    extra = memory(candidate.extra_bytes)
    return f"{speed}; gradients are kept between passes, which takes up to {extra} more"


def _from_wrong_scale(candidate: Candidate) -> str:
    """Another trial has the figures, this one's training is right."""
    assert candidate.evidence is not None
    evidence = candidate.evidence
    accumulation = candidate.measured.row["accumulation"]
    ratio = evidence.loss_flags[0].value or 0.0
    return (
        f"accumulation {accumulation}, whose losses are right; speed and memory are those of trial "
        f"{evidence.trial_ids[0]}, which accumulated {evidence.row['accumulation']} passes with a "
        f"loss {number(ratio)} times the reference's"
    )


def _from_neighbours(candidate: Candidate) -> str:
    assert candidate.evidence is not None
    smaller = candidate.measured.row["micro_batch"]
    larger = candidate.evidence.row["micro_batch"]
    return (
        f"micro-batches {smaller} and {larger}, which were measured: {candidate.micro_batch} lies "
        "between them, and its speed and memory with it, a margin allowed"
    )
