"""Labels of configurations, for every output: ``batch 64×2 · bf16 · adafactor · checkpoint``."""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

from jobs.spec import Choice, TrainingRecipe, TrialSpec
from jobs.techniques import AXES, BATCH_AXES

SEPARATOR = " · "
BATCH_NAMES = (*BATCH_AXES, "effective_batch")
"""Of a config, which may name the product of the two axes."""
_ALWAYS_NAMED = ("precision", "optimizer")
"""Axes whose default value is named, too, if the axis varies."""


def label(choices: Mapping[str, Choice], axes: Sequence[str]) -> str:
    """A configuration in a few words. ``axes`` are the axes that vary in the run. A technique at
    its default is left out, except on the axes of ``_ALWAYS_NAMED``. An accumulation above 1 is
    always named, because the user has to set it."""
    words = [batch_label(choices, axes)]
    for axis in axes:
        if axis not in BATCH_NAMES:
            words.append(_word(axis, choices.get(axis)))
    # Drop the empty words of axes at their default.
    return SEPARATOR.join(filter(None, words)) or "baseline"


def option(name: str) -> str:
    """An option as the command line and as Python write it: both show one message."""
    return f"--{name} (in Python: {name.replace('-', '_')}=True)"


def trial_label(spec: TrialSpec, axes: Sequence[str]) -> str:
    """A trial: its configuration, its repeat number above 0, and its GPU model if it has one."""
    words = [label(spec.choices, axes)]
    if spec.repeat:
        words.append(f"repeat {spec.repeat}")
    if spec.gpu_model:
        words.append(f"on {spec.gpu_model}")
    return SEPARATOR.join(words)


def batch_label(choices: Mapping[str, Choice], axes: Sequence[str] = BATCH_NAMES) -> str:
    """``batch 64×2``: micro-batch × accumulation. Empty if no batch axis varies and nothing is
    accumulated."""
    micro_batch = choices.get("micro_batch")
    accumulation = choices.get("accumulation")
    accumulates = accumulation not in (None, 1)
    if not accumulates and not set(BATCH_NAMES).intersection(axes):
        return ""
    if micro_batch is None:
        return f"accumulation {accumulation}"
    # An accumulation that varies is named even if it is 1.
    # It also varies if the effective batch is an axis.
    names_accumulation = accumulates or "accumulation" in axes or "effective_batch" in axes
    if names_accumulation and accumulation is not None:
        return f"batch {micro_batch}×{accumulation}"
    return f"batch {micro_batch}"


def changed_label(before: Mapping[str, Choice], after: Mapping[str, Choice]) -> str:
    """``micro_batch 16 + loss chunked``: what ``after`` chooses differently."""
    differing = {axis: value for axis, value in after.items() if value != before.get(axis)}
    return " + ".join(f"{axis} {value}" for axis, value in differing.items())


def recipe_label(recipe: TrainingRecipe) -> str:
    """``optimizer=sgd · adapter=lora_r8``. "plain" if no choice changes what the training
    learns."""
    words = [f"{axis}={value}" for axis, value in recipe.by_axis.items()]
    return SEPARATOR.join(words) or "plain"


def _word(axis: str, value: Choice) -> str:
    # The value of a training argument means nothing without the argument's name.
    if axis not in AXES:
        return f"{axis}={value}"
    # A default needs no word, except on the axes whose value readers always want to see.
    if value == AXES[axis].default and axis not in _ALWAYS_NAMED:
        return ""
    if AXES[axis].integer_unit:
        return f"{value} {AXES[axis].integer_unit}"
    # A number, or a name that several axes use, needs its axis beside it.
    if not isinstance(value, str) or value in _ambiguous_values():
        return f"{axis} {value}"
    return value


@functools.cache
def _ambiguous_values() -> frozenset[Choice]:
    """Names that techniques of several axes share, such as "eager" of attention and of compile."""
    axes_of_value: Counter[Choice] = Counter()
    for axis in AXES.values():
        # A list, because ``update`` would add the values of a mapping as counts.
        axes_of_value.update(list(axis.variants))
    return frozenset(value for value, number in axes_of_value.items() if number > 1)
