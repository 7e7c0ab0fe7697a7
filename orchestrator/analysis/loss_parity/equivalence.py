"""Measured equivalence: training recipes whose losses are those of the recipe that is ranked.

A plain training argument, such as ``use_liger_kernel``, is taken to change the training, because
no technique declares that it does not. Losses can show the contrary. Two trials at equal seed that
differ in such arguments alone draw the same random numbers, so equal mathematics gives losses
that agree to within rounding. The wider bound for other draws shows nothing here: on the recorded
runs SGD passes it beside AdamW in 219 of 220 pairs, and the bound of rounding in none.

A few steps cannot show everything, so three things are never concluded from them:

- A hyperparameter of the optimization, such as ``weight_decay``, acts over a whole training.
- A technique that is declared to change the training needs many steps. AdEMAMix's slow average
  adds 0.05 % a step, and its losses are AdamW's to within rounding for the first ones.
- A recipe with a single mismatch is another recipe, whatever its other pairs say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.spec import Choice, TrainingRecipe
from jobs.techniques import AXES
from jobs.techniques.workload import same_workload
from orchestrator.analysis.loss_parity.windows import LossWindow, loss_windows

MIN_STEPS = 4
"""The first loss precedes every update: three losses with an effect of the recipe."""
MIN_STEPS_OF_DECLARED = 100
"""Steps before losses outweigh a technique's declaration that it changes the training."""
HYPERPARAMETERS = (
    "adam_",
    "data_seed",
    "full_determinism",
    "group_by_length",
    "label_smoothing",
    "learning_rate",
    "lr_scheduler",
    "max_grad_norm",
    "max_steps",
    "neftune",
    "num_train_epochs",
    "optim",
    "seed",
    "train_sampling",
    "warmup_",
    "weight_decay",
)
"""Prefixes of training arguments that define the training: equal losses of a short run prove
nothing of them.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRecipe:
    """A configuration of a recipe, as far as this comparison needs it."""

    choices: Mapping[str, Choice]
    recipe: TrainingRecipe
    losses: Sequence[float]
    """Per optimizer step; empty where they are not known."""
    rounding: float
    """By how much losses of the same draws may differ at its precision, relative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SameLosses:
    """The measurement that makes a recipe equal to another: the weakest of its pairs."""

    pairs: int
    """Pairs of trials that differ in the recipe alone."""
    steps: int
    """The fewest steps that a pair has in common."""
    difference: float
    """The largest relative difference of the means of half a training."""


def equivalent_recipes(
    measured: Iterable[MeasuredRecipe], reference: TrainingRecipe
) -> dict[TrainingRecipe, SameLosses]:
    """The recipes whose losses are those of ``reference``, each with its measurement."""
    by_recipe: dict[TrainingRecipe, list[MeasuredRecipe]] = {}
    for member in measured:
        by_recipe.setdefault(member.recipe, []).append(member)
    references = by_recipe.pop(reference, [])
    # Each other recipe is judged as a whole: its pairs stand or fall together.
    equivalent = {}
    for recipe, members in by_recipe.items():
        differing = _differing_axes(recipe, reference)
        # Samples of another length are another workload, however near its losses are.
        if _can_be_shown(differing) and same_workload(recipe, reference):
            same_losses = _same_losses(members, references, differing)
            if same_losses is not None and same_losses.steps >= _steps_needed(differing):
                equivalent[recipe] = same_losses
    return equivalent


def _differing_axes(recipe: TrainingRecipe, reference: TrainingRecipe) -> frozenset[str]:
    # A choice that both recipes have does not set them apart.
    return frozenset(axis for axis, _ in recipe.choices ^ reference.choices)


def _can_be_shown(axes: Iterable[str]) -> bool:
    """Whether a short run's losses can show that these axes keep the training."""
    return not any(axis.startswith(HYPERPARAMETERS) for axis in axes if axis not in AXES)


def _steps_needed(axes: Iterable[str]) -> int:
    # The axes of techniques are in a recipe only where a technique declares that effect.
    is_declared = any(axis in AXES for axis in axes)
    if is_declared:
        return MIN_STEPS_OF_DECLARED
    return MIN_STEPS


def _same_losses(
    members: Iterable[MeasuredRecipe],
    references: Iterable[MeasuredRecipe],
    differing: frozenset[str],
) -> SameLosses | None:
    """What all pairs say together.

    None if a pair differs beyond rounding, or if there is no pair.
    """
    partners = {_other_choices(own, differing): own for own in references if own.losses}
    pairs = 0
    steps: list[int] = []
    differences: list[float] = []
    for member in members:
        partner = partners.get(_other_choices(member, differing))
        if partner is None or not member.losses:
            continue
        windows = _windows(member, partner)
        if not windows or not all(window.matches for window in windows):
            return None
        pairs += 1
        steps.append(windows[-1].end)
        differences += [window.difference for window in windows]
    if not pairs:
        return None
    return SameLosses(pairs=pairs, steps=min(steps), difference=max(differences))


def _windows(member: MeasuredRecipe, partner: MeasuredRecipe) -> tuple[LossWindow, ...]:
    """The losses of a pair compared to within rounding; nothing where one is not finite."""
    for loss in (*member.losses, *partner.losses):
        if not math.isfinite(loss):
            return ()
    return loss_windows(member.losses, partner.losses, member.rounding, 0.0)


def _other_choices(own: MeasuredRecipe, differing: frozenset[str]) -> tuple[object, ...]:
    """Everything that has to be equal for a pair, as text: tables write arguments as text."""
    others = []
    for axis, value in own.choices.items():
        if axis not in differing:
            others.append((axis, str(value)))
    return tuple(sorted(others))
