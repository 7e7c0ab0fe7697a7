"""The user's own training arguments as values of the technique axes.

Then the user's own training is one configuration of the space, and each axis is free to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES, Axis, Variant
from jobs.techniques.axes.activations import RENAMED
from orchestrator.planning.arguments import owned_arguments
from orchestrator.planning.base_arguments import CUSTOM


def with_own_values(
    baseline: Mapping[str, Choice], arguments: Mapping[str, Any]
) -> tuple[dict[str, Choice], dict[str, Any]]:
    """The baseline and the training arguments, with arguments as values of axes where they can be.

    Arguments that no value of their axis stands for stay as they are, and the axis stays "custom".
    """
    choices = dict(baseline)
    kept = dict(arguments)
    for name, axis in AXES.items():
        own = _own_arguments(name, kept)
        if axis.integer_argument or not own or baseline.get(name) != CUSTOM:
            continue
        value = _value_of(axis, own)
        if value is not None:
            choices[name] = value
            kept = {key: kept[key] for key in kept if _current_name(key) not in own}
    # The batch's arguments are integers, which the axes hold already.
    batch = {axis.integer_argument for axis in AXES.values() if axis.integer_argument}
    return choices, {key: value for key, value in kept.items() if key not in batch}


def _own_arguments(axis: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that an axis decides, by the names that the axis uses."""
    own = {}
    for name, value in arguments.items():
        if owned_arguments().get(name) == axis:
            own[_current_name(name)] = value
    return own


def _current_name(argument: str) -> str:
    """The name by which the rows of techniques call an argument."""
    for old, new in RENAMED.items():
        if argument == new:
            return old
    return argument


def _value_of(axis: Axis, own: Mapping[str, Any]) -> str | None:
    """The value of the axis that the arguments stand for; None if there is none.

    Of several it is the one with the fewest arguments that the user did not set.
    """
    matches: list[tuple[int, int, int, str]] = []
    for name, variant in axis.variants.items():
        if _stands_for(own, variant):
            unset = len(variant.training_arguments.keys() - own.keys())
            matches.append(
                (unset, len(variant.model_kwargs) + len(variant.hooks), len(matches), name)
            )
    if not matches:
        return None
    return min(matches)[-1]


def _stands_for(own: Mapping[str, Any], variant: Variant) -> bool:
    """Whether arguments mean a variant: none contradicts it, and what it turns on is set."""
    given = variant.training_arguments
    for name, value in own.items():
        if (value or None) != (given.get(name) or None):
            return False
    # A switch that the user left off is off. Other arguments refine what the switch turns on.
    switches = {name for name, value in given.items() if value is True}
    return switches <= own.keys()
