"""The user's own training arguments as values of the technique axes.

The user's own training is then one configuration of a sweep, and ``tune`` can change each axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES, Axis, Variant
from orchestrator.planning.arguments import older_name, owned_arguments
from orchestrator.planning.base_arguments import CUSTOM


def with_own_values(
    baseline: Mapping[str, Choice], arguments: Mapping[str, Any]
) -> tuple[dict[str, Choice], dict[str, Any]]:
    """The baseline and the training arguments, with arguments replaced by values of axes.

    If no value of an axis sets the user's arguments, the arguments are kept, and the value of the
    axis stays "custom".
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
            kept = {key: kept[key] for key in kept if older_name(key) not in own}
    # The baseline already has the arguments of the batch, as integers of their axes.
    batch = {axis.integer_argument for axis in AXES.values() if axis.integer_argument}
    return choices, {key: value for key, value in kept.items() if key not in batch}


def _own_arguments(axis: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The user's arguments that belong to an axis, under the names in the axis's rows."""
    owners = owned_arguments()
    own = {name: value for name, value in arguments.items() if owners.get(name) == axis}
    return {older_name(name): value for name, value in own.items()}


def _value_of(axis: Axis, own: Mapping[str, Any]) -> str | None:
    """The value of the axis that sets the user's arguments; None if no value does.

    If several do, it is the one with the fewest arguments that the user did not set.
    """
    fitting = [name for name, variant in axis.variants.items() if _has_arguments(own, variant)]

    def beyond(name: str) -> tuple[int, int]:
        variant = axis.variants[name]
        unset = variant.training_arguments.keys() - own.keys()
        return len(unset), len(variant.model_kwargs) + len(variant.hooks)

    return min(fitting, key=beyond, default=None)


def _has_arguments(own: Mapping[str, Any], variant: Variant) -> bool:
    """Whether a variant has the user's arguments.

    No argument contradicts the variant, and the user has set every switch that it turns on.
    """
    given = variant.training_arguments
    for name, value in own.items():
        if (value or None) != (given.get(name) or None):
            return False
    # A switch that the user has not set is off. Other arguments are details of a switch, so they
    # may be missing.
    switches = {name for name, value in given.items() if value is True}
    return switches <= own.keys()
