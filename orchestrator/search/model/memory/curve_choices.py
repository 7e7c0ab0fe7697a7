"""The choices of each curve, and what they are expected to change in its memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.techniques import AXES
from orchestrator.analysis.grouping import grouped
from orchestrator.search.model.arrays import Array, Indices, Mask
from orchestrator.search.model.candidates import Curve
from orchestrator.search.model.curve_prior import VaryingAxis, varying_axes
from orchestrator.search.model.effects.technique_priors import TechniquePriors

_OF_ACTIVATIONS = ("activations", "attention", "batching", "compile", "experts", "kernels", "loss")
"""Axes that change the memory of the samples, and not that of weights and optimizer states."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveChoices:
    """The choices of each curve on the axes that vary, and their expected effects."""

    codes: Indices
    """Indices of the values, shape (curves, axes)."""
    log_memory: Array
    """Expected logarithms of the factors on the memory that an axis changes, (curves, axes)."""
    defaults: Indices
    """How many defaults a curve has, shape (curves,)."""
    covariances: Sequence[Array]
    """For each axis, that of its effects, (values + 1, values + 1); the last ones are zeros."""
    is_loss: Mask
    """Whether an axis is the loss, shape (axes,)."""
    is_of_samples: Mask
    """Whether an axis changes only the memory that grows with the micro-batch, shape (axes,)."""

    def axes(self, *, of_samples: bool) -> list[int]:
        """The axes that change the memory of the samples, or all others."""
        return np.flatnonzero(self.is_of_samples == of_samples).tolist()

    def donor(self, curve: int, predicted: Indices) -> int:
        """The predicted curve that differs from a curve in the fewest choices."""
        differing = (self.codes[predicted] != self.codes[curve]).sum(axis=1)
        # Of several, the one with the most defaults: recorded effects are those of changes from the
        # default. Their number counts for less than one choice.
        defaults = self.defaults[predicted] / (len(self.covariances) + 1)
        return int(predicted[np.argmin(differing - defaults)])

    def groups(self, curves: Iterable[int], axes: Mask) -> list[list[int]]:
        """The curves in groups with equal values on some axes."""
        values = grouped(curves, lambda curve: tuple(self.codes[curve, axes].tolist()))
        return list(values.values())


def curve_choices(curves: Sequence[Curve], priors: TechniquePriors) -> CurveChoices:
    """The choices on the axes that vary between the curves."""
    axes = varying_axes(curves, priors)
    effects = [_effects_on_memory(axis, priors) for axis in axes]
    log_memory = [means[axis.codes] for axis, (means, _) in zip(axes, effects, strict=True)]
    defaults = np.zeros(len(curves), int)
    for axis in axes:
        default = AXES[axis.name].default if axis.name in AXES else None
        defaults += np.array([value == default for value in axis.values])[axis.codes]
    names = [axis.name for axis in axes]
    shape = (len(axes), len(curves))
    return CurveChoices(
        codes=np.reshape([axis.codes for axis in axes], shape).astype(int).T,
        log_memory=np.reshape(log_memory, shape).T,
        defaults=defaults,
        covariances=[covariance for _, covariance in effects],
        is_loss=np.isin(names, ["loss"]),
        is_of_samples=np.isin(names, _OF_ACTIVATIONS),
    )


def _effects_on_memory(axis: VaryingAxis, priors: TechniquePriors) -> tuple[Array, Array]:
    """``log_memory`` of the values of an axis, and the covariance of their effects."""
    effects = [priors.of(axis.name, value) for value in axis.values]
    expected = [(effect.log_memory, effect.memory_deviation) for effect in effects]
    if axis.name in _OF_ACTIVATIONS:
        expected = [effect.of_sample() for effect in effects]
    log_memory, deviations = np.array(expected).T
    # The default has no deviation, but a change from another value to the default has one.
    deviations = np.where(deviations > 0, deviations, deviations.max())
    covariance = np.outer(deviations, deviations) * axis.similarities
    return log_memory, np.pad(covariance, (0, 1))
