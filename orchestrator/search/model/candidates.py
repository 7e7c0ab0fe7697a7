"""Groups the plan's configurations into curves, along which only the micro-batch changes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jobs.ragged_steps import OTHERS, TURN
from jobs.spec import Choice, TrainingRecipe, TrialSpec
from jobs.techniques import BATCH_AXES
from orchestrator.analysis.grouping import grouped

OPTIMIZER = "optimizer"
NO_DEVICE_MEMORY = frozenset({"dataloader", "loop"})
"""Axes that change how a step is fed and driven, not what the GPU keeps."""
_NO_OPTIMIZER = frozenset({"activations", "precision"})
"""Axes that change neither an optimizer's states nor its step, within one training recipe."""

Techniques = tuple[tuple[str, str, Choice], ...]
"""Axis, name of the value's type, value; axes in alphabetical order. The type tells 1 from True."""
Regime = tuple[str, int]
"""What is constant along a curve: ("accumulation", 4) or ("effective_batch", 64)."""
OptimizerFamily = tuple[TrainingRecipe, Techniques]
"""What candidates have in common where an optimizer costs the same extra memory or time."""


class Curve(NamedTuple):
    """What candidates that differ only in the micro-batch have in common."""

    techniques: Techniques
    regime: Regime

    @property
    def of_memory(self) -> Curve:
        """The curve without the techniques that change nothing in the memory of the GPU."""
        # The regime stays: with accumulation, two such curves may have different ones.
        return Curve(_without(self.techniques, NO_DEVICE_MEMORY), self.regime)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Candidate:
    """A configuration of the plan with its repeats. Two objects are never equal."""

    trials: tuple[TrialSpec, ...]
    trial_ids: tuple[str, ...]
    training_recipe: TrainingRecipe
    """Candidates are compared only within their training recipe, at any effective batch."""
    curve: Curve
    reference_curve: Curve
    """The same curve with the optimizer of the plan's first trial."""
    micro_batch: int
    accumulation: int

    @property
    def samples(self) -> int:
        """Those of a pass, on all GPUs together."""
        return self.micro_batch * self.trials[0].world_size

    @property
    def steps(self) -> int:
        """Optimizer steps of a trial, warm-up included. A whole epoch counts as 100."""
        measure = self.trials[0].measure
        if measure.steps is None:
            return measure.warmup_steps + 100
        return max(measure.warmup_steps, self.new_lengths) + measure.steps

    @property
    def new_lengths(self) -> int:
        """Steps of a trial on lengths that it meets for the first time; 0 for equal rows."""
        spec = self.trials[0]
        if not spec.may_be_ragged or spec.measure.steps is None:
            return 0
        # The longest rows of the data come last, together.
        return OTHERS + min(TURN, spec.measure.steps) + 1

    @property
    def techniques(self) -> Techniques:
        """The values of all axes except those of the batch."""
        return self.curve.techniques

    def optimizer_family(self, *, is_time: bool) -> OptimizerFamily:
        """The candidate's family for the optimizer's extra time, or else its memory."""
        of_memory = frozenset() if is_time else NO_DEVICE_MEMORY
        return self.training_recipe, _without(self.techniques, _NO_OPTIMIZER | of_memory)


def candidates_of(trials: Iterable[TrialSpec]) -> tuple[Candidate, ...]:
    """The plan's configurations in the order of the plan, each with all its repeats."""
    groups = grouped(
        trials, lambda own: (_techniques(own.choices), own.micro_batch, own.accumulation)
    )
    possible = [_possible_curves(key[0], repeats[0]) for key, repeats in groups.items()]
    curve_sizes = Counter(itertools.chain.from_iterable(possible))
    # All other optimizers are compared with that of the first trial.
    optimizers = [repeats[0].choices.get(OPTIMIZER) for repeats in groups.values()]
    candidates = []
    for repeats, curves in zip(groups.values(), possible, strict=True):
        # Of the possible curves, the one with the most candidates gives the most information.
        curve = max(curves, key=curve_sizes.__getitem__)
        candidates.append(_candidate(repeats, curve, optimizers[0]))
    return tuple(candidates)


def _possible_curves(techniques: Techniques, trial: TrialSpec) -> list[Curve]:
    """Curves of constant accumulation and of constant effective batch."""
    # Accumulation keeps gradients between passes, which takes extra memory. So a trial with one
    # pass per step shares no curve with trials of several passes.
    curves = [Curve(techniques, ("accumulation", trial.accumulation))]
    if trial.accumulation > 1:
        curves.append(Curve(techniques, ("effective_batch", trial.effective_batch)))
    return curves


def _candidate(
    repeats: Sequence[TrialSpec], curve: Curve, reference_optimizer: Choice
) -> Candidate:
    first = repeats[0]
    reference = (OPTIMIZER, type(reference_optimizer).__name__, reference_optimizer)
    techniques = (reference if own[0] == OPTIMIZER else own for own in curve.techniques)
    return Candidate(
        trials=tuple(repeats),
        trial_ids=tuple(trial.trial_id for trial in repeats),
        training_recipe=first.training_recipe,
        curve=curve,
        reference_curve=Curve(tuple(techniques), curve.regime),
        micro_batch=first.micro_batch,
        accumulation=first.accumulation,
    )


def _without(techniques: Techniques, axes: Collection[str]) -> Techniques:
    return tuple(own for own in techniques if own[0] not in axes)


def _techniques(choices: Mapping[str, Choice]) -> Techniques:
    """The values of all axes except those of the batch."""
    techniques = ((axis, type(value).__name__, value) for axis, value in sorted(choices.items()))
    return _without(tuple(techniques), BATCH_AXES)
