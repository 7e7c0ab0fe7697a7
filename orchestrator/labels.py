"""How a configuration is named, everywhere: ``batch 64×2 · bf16 · adafactor · checkpoint``."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

from jobs.spec import Choice, TrainingRecipe, TrialSpec
from jobs.techniques import AXES

SEPARATOR = " · "
_BATCH_AXES = ("micro_batch", "accumulation", "effective_batch")
_ALWAYS_NAMED = ("precision", "optimizer")
"""Axes whose default is named, too, if the axis varies."""


def label(choices: Mapping[str, Choice], axes: Sequence[str]) -> str:
    """A configuration in a few words.

    ``axes`` are those that vary in the run. Of these, a technique at its default is left out. An
    accumulation above 1 is always named, because it changes what has to be typed.
    """
    words = [batch_label(choices, axes)]
    for axis in axes:
        if axis not in _BATCH_AXES:
            words.append(_word(axis, choices.get(axis)))
    # An axis at its default has no word.
    return SEPARATOR.join(filter(None, words)) or "default"


def trial_label(spec: TrialSpec, axes: Sequence[str]) -> str:
    """A trial: its configuration, its repeat number above 0, and its GPU model if it has one."""
    words = [label(spec.choices, axes)]
    if spec.repeat:
        words.append(f"repeat {spec.repeat}")
    if spec.gpu_model:
        words.append(f"on {spec.gpu_model}")
    return SEPARATOR.join(words)


def batch_label(choices: Mapping[str, Choice], axes: Sequence[str] = _BATCH_AXES) -> str:
    """``batch 64×2``: micro-batch × accumulation; empty if neither varies and nothing is
    accumulated.
    """
    micro_batch = choices.get("micro_batch")
    accumulation = choices.get("accumulation")
    accumulates = accumulation not in (None, 1)
    if not accumulates and not set(_BATCH_AXES).intersection(axes):
        return ""
    if micro_batch is None:
        return f"accumulation {accumulation}"
    # The accumulation is part of the name if it varies, even if it happens to be 1.
    # An effective batch varies the accumulation, too.
    splits = accumulates or "accumulation" in axes or "effective_batch" in axes
    if splits and accumulation is not None:
        return f"batch {micro_batch}×{accumulation}"
    return f"batch {micro_batch}"


def recipe_label(recipe: TrainingRecipe) -> str:
    """``optimizer=sgd · adapter=lora_r8``; "plain" if no choice changes what the training
    learns.
    """
    words = [f"{axis}={value}" for axis, value in recipe.by_axis.items()]
    return SEPARATOR.join(words) or "plain"


def _word(axis: str, value: Choice) -> str:
    # A training argument means nothing without its name.
    if axis not in AXES:
        return f"{axis}={value}"
    # What everybody uses needs no word, except if the axis itself is the question.
    if value == AXES[axis].default and axis not in _ALWAYS_NAMED:
        return ""
    # A number, or a name of several axes, needs its axis beside it.
    if not isinstance(value, str) or value in _ambiguous_values():
        return f"{axis} {value}"
    return value


@functools.cache
def _ambiguous_values() -> frozenset[Choice]:
    """Names that techniques of several axes share, such as "eager" of attention and of compile."""
    axes_of_value: Counter[Choice] = Counter()
    for axis in AXES.values():
        axes_of_value.update(list(axis.variants))  # of a mapping, update adds the values
    return frozenset(value for value, axes in axes_of_value.items() if axes > 1)
