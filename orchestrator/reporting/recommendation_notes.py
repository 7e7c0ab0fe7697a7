"""What to know before training with a candidate of a recommendation."""

from collections.abc import Iterator

from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.analysis.gradient_results import GradientResult, same_code
from orchestrator.analysis.loss_parity.windows import CheckState
from orchestrator.analysis.recommendation import Offer
from orchestrator.labels import recipe_label
from orchestrator.reporting import flags
from orchestrator.reporting.sections import gradients
from orchestrator.storage.tables.rows import Row, recipe_of
from orchestrator.units import count, memory


def notes(results: EnvironmentResults, candidate: Offer) -> list[str]:
    """What to know before training with a candidate, a sentence each."""
    sentences = []
    if candidate.is_inferred:
        sentences.append(f"inferred from {_inference(candidate)}")
    if candidate.configuration.training_recipe != results.recipe:
        recipe = recipe_label(candidate.configuration.training_recipe)
        sentences.append(f"other training recipe than the baseline: {recipe}")
    sentences += _epoch(candidate.measured.row)
    sentences += _losses(candidate)
    compared = _gradients(results, candidate)
    sentences += map(gradients.sentence, compared)
    policy = results.run.config.get("follow_up") or {}
    # Without a GPU nothing is compared.
    has_gpu = results.memory_column == "device_peak_bytes"
    if not compared and has_gpu and policy.get("check_gradients"):
        sentences.append("gradients not compared: the time of the follow-ups was used up")
    sentences += map(flags.with_heading, candidate.configuration.flags)
    return sentences


def _epoch(row: Row) -> Iterator[str]:
    """What a whole epoch of rows of unequal length takes beyond the few steps of a trial."""
    growth = row.get("epoch_growth_bytes")
    if growth:
        differs = (
            f"{memory(growth)} more than in the trial's few steps is forecast, because segments of "
            "one length do not serve the next"
            if growth > 0
            else f"{memory(-growth)} less than in the trial's few steps is forecast, because these "
            "have the longest rows at once"
        )
        yield f"memory of a whole epoch: {differs}"
    # Only a trial of a few steps on unequal rows has this share.
    elif growth is None and row.get("new_shapes_share") is not None:
        yield "memory of a few steps: what an epoch adds is not known for this configuration"


def _gradients(results: EnvironmentResults, candidate: Offer) -> list[GradientResult]:
    """What was compared of configurations whose gradients the same code computes."""
    code = same_code(candidate.measured)
    same = (own for own in results.configurations if same_code(own) == code)
    found = (results.gradient_results.get(trial) for own in same for trial in own.trial_ids)
    return [result for result in found if result is not None]


def _gradients_agree(results: EnvironmentResults, candidate: Offer) -> bool:
    """Gradients that agree say more than losses: equal ones follow from them."""
    checks = [result.check for result in _gradients(results, candidate)]
    return any(check is not None and check.agrees for check in checks)


def short_notes(results: EnvironmentResults, candidate: Offer) -> str:
    """The headings of the notes: `` (inferred, unstable)``."""
    headings = list(dict.fromkeys(_headings(results, candidate)))
    return f" ({', '.join(headings)})" if headings else ""


def _headings(results: EnvironmentResults, candidate: Offer) -> Iterator[str]:
    configuration = candidate.configuration
    if candidate.is_inferred:
        yield "inferred"
    if configuration.training_recipe != results.recipe:
        yield "other training recipe"
    loss_state = candidate.measured.loss_state
    if configuration.same_losses is not None and loss_state is not CheckState.MISMATCH:
        yield "same losses as the reference, measured"
    elif loss_state is CheckState.NOT_CHECKED and not _gradients_agree(results, candidate):
        yield "losses not checked"
    for flag in configuration.flags:
        yield flags.heading(flag.kind)


def _losses(candidate: Offer) -> Iterator[str]:
    same_losses = candidate.configuration.same_losses
    if same_losses is not None:
        declared = recipe_label(recipe_of(candidate.configuration.row))
        pairs = count(same_losses.pairs, "pair")
        yield (
            f"same losses as the reference, measured: {declared} changes them by at most "
            f"{100 * same_losses.difference:.2g} % ({pairs} of trials, "
            f"{count(same_losses.steps, 'step')})"
        )
    elif candidate.measured.loss_state is CheckState.NOT_CHECKED:
        check = candidate.measured.loss_check
        why = "there is no reference to compare them with"
        if check.bound is not None:
            steps = count(check.steps, "step")
            why = f"over {steps} a difference of {flags.percent(check.bound)} could be chance"
        yield f"losses not checked: {why}"
    if candidate.suspicion is not None:
        yield f"{flags.with_heading(candidate.suspicion)}; an exported train.py corrects that"


def _inference(candidate: Offer) -> str:
    """How the candidate's figures follow from measurements of other batches."""
    measured = candidate.measured
    if candidate.larger is not None:
        return (
            f"micro-batches {measured.micro_batch} and {candidate.larger.micro_batch}, which were "
            f"measured: {candidate.micro_batch} lies between them, and its speed and memory with "
            "it, a margin allowed"
        )
    speed = (
        f"accumulation {measured.accumulation}: more accumulation spreads the optimizer's update "
        "over more samples, so the speed is at least the measured one"
    )
    if not candidate.extra_bytes:
        return speed
    extra = memory(candidate.extra_bytes)
    return f"{speed}; gradients are kept between passes, which takes up to {extra} more"
