"""Measured equivalence: finds training recipes with the same losses as the ranked recipe.

A plain training argument, such as ``use_liger_kernel``, counts as a change of the training, because
no technique declares that it is none. But two trials with the same seed that differ only in such
arguments draw the same random numbers. If both compute the same function, their losses differ by
rounding only. (The wider bound for other random numbers would not separate recipes: with it, SGD
matched AdamW in 219 of 220 recorded pairs; with the bound of rounding, in none.)

A few steps cannot show everything, so two recipes never count as equal if they differ in a
hyperparameter, such as ``weight_decay``, which acts over a whole training; nor if a single pair of
their trials does not match; nor if they differ in a technique that is declared to change the
training, unless ``MIN_STEPS_OF_DECLARED`` steps were compared. AdEMAMix's slow average adds 0.05 %
a step, so its first losses equal AdamW's to within rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from jobs.spec import TrainingRecipe
from jobs.techniques import AXES
from jobs.techniques.sample_kind import same_workload
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.loss_parity.loss_checks import rounding_of
from orchestrator.analysis.loss_parity.windows import LossWindow, loss_windows

if TYPE_CHECKING:
    from orchestrator.analysis.configuration import Configuration

MIN_STEPS = 4
"""With four steps, three losses come after an update and so depend on the recipe."""
MIN_STEPS_OF_DECLARED = 100
"""The same if a technique declares that it changes the training: its losses need more steps."""
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
"""Prefixes of training arguments that act over a whole training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SameLosses:
    """The evidence that two recipes train the same. Each figure is the weakest of all pairs."""

    pairs: int
    steps: int
    difference: float
    """Relative difference of the means of half a training."""


def equivalent_recipes(
    measured: Iterable[Configuration],
    reference: TrainingRecipe,
    losses: Mapping[str, Sequence[float]],
    axes: Mapping[str, str],
) -> dict[TrainingRecipe, SameLosses]:
    """The recipes with the losses of ``reference``; ``axes`` maps an axis to its column."""
    by_recipe = grouped(measured, attrgetter("training_recipe"))
    references = [own for own in by_recipe.pop(reference, []) if losses.get(own.trial_ids[0])]
    equivalent = {}
    for recipe, members in by_recipe.items():
        differing = frozenset(axis for axis, _ in recipe.choices ^ reference.choices)
        plain_arguments = [axis for axis in differing if axis not in AXES]
        # Recipes with other samples, such as longer ones, are never equal, even if losses match.
        can_be_shown = not any(axis.startswith(HYPERPARAMETERS) for axis in plain_arguments)
        if not can_be_shown or not same_workload(recipe, reference):
            continue
        evidence = _same_losses(_pairs(members, references, differing), losses, axes)
        # Techniques are in a recipe only if they declare that they change the training.
        is_declared = len(plain_arguments) < len(differing)
        needed = MIN_STEPS_OF_DECLARED if is_declared else MIN_STEPS
        if evidence is not None and evidence.steps >= needed:
            equivalent[recipe] = evidence
    return equivalent


def _pairs(
    members: Iterable[Configuration], references: Iterable[Configuration], differing: frozenset[str]
) -> Iterator[tuple[Configuration, Configuration]]:
    def other_choices(own: Configuration) -> frozenset[object]:
        # As text, because tables hold choices as text.
        choices = own.choices.items()
        return frozenset((axis, str(value)) for axis, value in choices if axis not in differing)

    partners = {other_choices(own): own for own in references}
    for member in members:
        partner = partners.get(other_choices(member))
        if partner is not None:
            yield member, partner


def _same_losses(
    pairs: Iterable[tuple[Configuration, Configuration]],
    losses: Mapping[str, Sequence[float]],
    axes: Mapping[str, str],
) -> SameLosses | None:
    """None if the losses of a pair differ beyond rounding, or if no pair has losses."""
    compared: list[tuple[LossWindow, ...]] = []
    for member, partner in pairs:
        own, others = (losses.get(each.trial_ids[0], ()) for each in (member, partner))
        if own and not all(map(math.isfinite, (*own, *others))):
            return None
        if own:
            compared.append(loss_windows(own, others, rounding_of(member.row, axes), 0.0))
    windows = [window for of_pair in compared for window in of_pair]
    if not compared or not all(window.matches for window in windows):
        return None
    return SameLosses(
        pairs=len(compared),
        steps=min(of_pair[-1].end for of_pair in compared),
        difference=max(window.difference for window in windows),
    )
