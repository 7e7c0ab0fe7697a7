"""Configurations as rows of tables: shared columns, marks, and what the marks mean."""

from collections.abc import Iterable, Mapping
from typing import Any

from jobs.flags import LOSS, FlagKind, has_any
from jobs.spec import TrainingRecipe
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.follow_up_results import CapCheck, PairedComparison
from orchestrator.analysis.loss_parity.windows import CheckState
from orchestrator.labels import recipe_label
from orchestrator.reporting import flags
from orchestrator.reporting.content import Column, Format
from orchestrator.units import count, error, memory

OTHER_RECIPE = "†"
HOST_BOUND = "h"
LOSS_MISMATCH = "≠"
MARKS_MEAN = {
    OTHER_RECIPE: "other training recipe",
    HOST_BOUND: "host-bound: the GPU waited for the host, so this is the host's speed",
    LOSS_MISMATCH: "loss mismatch: the losses do not match the reference",
}

LOSS_STATES: Mapping[CheckState, str] = {
    CheckState.MATCHES: "match the reference",
    CheckState.MISMATCH: "do not match the reference",
    CheckState.NOT_CHECKED: "not checked",
    CheckState.REFERENCE: "the reference",
}
MEMORY_MEANS: Mapping[str, str] = {
    "device_peak_bytes": "peak of the whole GPU as NVML reports it, CUDA context included",
    "peak_allocated_bytes": "peak of the bytes in tensors, without CUDA context and fragmentation",
    "host_peak_resident_bytes": "peak resident memory of the process",
}
"""Column that memory is compared by -> what it measures."""

CONFIGURATION = Column(key="configuration", heading="configuration", format=Format.CONFIGURATION)
MEMORY = Column(key="memory_bytes", heading="memory", format=Format.MEMORY)
SPEED = Column(key="samples_per_second", heading="samples/s", format=Format.NUMBER, marks="marks")
TOKENS = Column(key="real_tokens_per_second", heading="tokens/s", format=Format.NUMBER)
LOSSES = Column(key="losses", heading="losses", is_detail=True)
TRIAL = Column(key="trial_id", heading="trial")
ERROR95 = Column(key="samples_per_second_error95", heading="±", format=Format.CI95)
BUDGET = Column(key="budget", heading="budget", format=Format.MEMORY)
SPEEDS = (SPEED, ERROR95, TOKENS)
WHICH = (CONFIGURATION, LOSSES, TRIAL)


def row_of(
    dataset: Dataset, results: EnvironmentResults, configuration: Configuration
) -> dict[str, Any]:
    """A configuration as plain values: label, figures, marks and what identifies it."""
    # Tokens a second say more if the length of samples varies, or of a language model.
    task = str((dataset.run.config.get("model") or {}).get("task", ""))
    varies = {"sequence_length", "batching"}.intersection(dataset.varying_axes)
    says_more = varies or task.endswith("-lm")
    return {
        "configuration": dataset.label(configuration.choices),
        "memory_bytes": configuration.memory_bytes,
        "samples_per_second": configuration.samples_per_second,
        "samples_per_second_error95": configuration.error95,
        "real_tokens_per_second": configuration.real_tokens_per_second if says_more else None,
        "marks": marks(results, configuration),
        "losses": losses(configuration),
        "loss_check": configuration.loss_state,
        "trial_id": configuration.trial_ids[0],
        "choices": dict(configuration.choices),
        "training_recipe": configuration.training_recipe.by_axis,
        "effective_batch": configuration.effective_batch,
        "flags": flags.to_json(configuration.flags),
    }


def losses(configuration: Configuration) -> str:
    """What the loss checks say about a configuration or its training recipe, in words."""
    is_wrong = configuration.loss_state is CheckState.MISMATCH
    if configuration.same_losses is not None and not is_wrong:
        return "same as the reference, measured"
    words = LOSS_STATES[configuration.loss_state]
    # The smallest fault that this comparison could have found.
    check = configuration.loss_check
    if configuration.loss_state is CheckState.MATCHES and check.bound:
        where = " in the first step" if check.steps == 1 else ""
        return f"{words} within {flags.percent(check.bound)}{where}"
    return words


def wrong_parts(configurations: Iterable[Configuration]) -> str:
    """What does not match the reference in configurations that were left out: ``losses``."""
    kinds = {flag.kind for own in configurations for flag in own.flags}
    parts = {"losses": LOSS, "gradients": {FlagKind.GRADIENTS_DIFFER}}
    return " or ".join(name for name, own in parts.items() if kinds & own)


def marks(results: EnvironmentResults, configuration: Configuration) -> list[str]:
    """The signs that stand before a configuration's speed."""
    applies = {
        OTHER_RECIPE: configuration.training_recipe != results.recipe,
        HOST_BOUND: configuration.is_host_bound,
        LOSS_MISMATCH: has_any(configuration.flags, LOSS),
    }
    return [mark for mark, is_shown in applies.items() if is_shown]


def mark_notes(
    results: EnvironmentResults, configurations: Iterable[Configuration]
) -> tuple[str, ...]:
    """The meanings of the marks on these configurations, one line each."""
    listed = list(configurations)
    used = {mark for configuration in listed for mark in marks(results, configuration)}
    recipes = dict.fromkeys(own.training_recipe for own in listed)
    others = [recipe_name(results, own) for own in recipes if own != results.recipe]
    named = {OTHER_RECIPE: f": {'; '.join(others)}"}
    return tuple(
        f"{mark} {meaning}{named.get(mark, '')}"
        for mark, meaning in MARKS_MEAN.items()
        if mark in used
    )


def recipe_name(results: EnvironmentResults, recipe: TrainingRecipe) -> str:
    """A training recipe in words."""
    if recipe == results.recipe and results.is_baseline_recipe:
        return "the baseline's recipe"
    return recipe_label(recipe)


def memory_meaning(results: EnvironmentResults) -> str:
    """What an environment's memory figures measure, and what they leave out."""
    rows = [own.row for own in results.configurations]
    evaluates = any(row.get("evaluate_seconds") is not None for row in rows)
    parts = "evaluation and checkpoint included" if evaluates else "the training alone"
    if any(row.get("epoch_growth_bytes") is not None for row in rows):
        parts += ", of a whole epoch, as forecast from a few steps"
    return f"{MEMORY_MEANS[results.memory_column]}; {parts}"


def error_meaning(results: EnvironmentResults) -> str:
    """What ± says."""
    if not any(own.row.get("gpu_model") for own in results.configurations):
        return "±: assumed, because no recorded run shows by how much trials on a CPU differ."
    return "±: a trial in another run is as fast within this, in 95 of 100 cases."


def tie_break_sentence(comparison: PairedComparison, labels: Mapping[str, str]) -> str:
    """The result of a tie-break of two configurations; ``labels`` maps trials to labels."""
    challenger = labels[comparison.trial_id]
    reference = labels[comparison.reference_id]
    rounds = f"({count(comparison.rounds, 'interleaved round')} on one GPU)"
    # The ratio is the challenger's speed divided by the reference's, with half its 95 % interval.
    uncertainty = error(comparison.ci95)
    if comparison.is_faster:
        faster, slower, ratio = challenger, reference, comparison.ratio
    elif comparison.is_slower:
        faster, slower, ratio = reference, challenger, 1 / comparison.ratio
    else:
        percent = f"{100 * (comparison.ratio - 1):+.1f}".replace("-", "−")
        pair = f"{reference} and {challenger}"
        return f"Not certain which of {pair} is faster: {percent} % {uncertainty} {rounds}."
    return f"{faster} is {100 * (ratio - 1):.1f} % {uncertainty} faster than {slower} {rounds}."


def labels_of_trials(dataset: Dataset, configurations: Iterable[Configuration]) -> dict[str, str]:
    """Trial -> its configuration's label, repeats included."""
    return {
        trial_id: dataset.label(configuration.choices)
        for configuration in configurations
        for trial_id in configuration.trial_ids
    }


def not_verified(limit: float | None) -> str:
    """That no cap check shows whether a pick fits a limit in bytes."""
    return f"fits by its uncapped peak; not verified under a memory cap of {memory(limit)}"


def check_to_json(check: CapCheck | None) -> dict[str, Any] | None:
    """The result of a cap check as plain JSON values."""
    if check is None:
        return None
    return {
        "trial_id": check.trial_id,
        "cap_bytes": check.budget_bytes,
        "memory_bytes": check.memory_bytes,
        "samples_per_second": check.samples_per_second,
    }
