"""The values of a batch's integers and conditions, on tensors without data that follow from them.

How much TRL computes depends on how many positions have a label.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

_VALUE = "known_value"
"""Attribute of a tensor without data."""


def know(tensor: torch.Tensor, value: torch.Tensor) -> None:
    setattr(tensor, _VALUE, value)


def number_of(tensor: torch.Tensor) -> Any:
    """The value of a scalar; None if it is not known."""
    value = _value_of(tensor)
    with _disable_current_modes():
        return None if value is None else value.item()


def true_values(condition: Any) -> int | None:
    """How many values of a condition are true; None if it is none, or not known."""
    value = _value_of(condition)
    if value is None or value.dtype is not torch.bool:
        return None
    with _disable_current_modes():
        return int(value.sum())


def follow(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
    """Let the results be known if they are integers or conditions, and all inputs are known."""
    results = _tensors(output)
    inputs = _tensors((args, dict(kwargs)))
    if func._schema.is_mutable or not inputs or any(own.is_floating_point() for own in results):
        return
    if any(_value_of(own) is None for own in inputs):
        return
    with _disable_current_modes():
        known_args, known_kwargs = tree_map_only(torch.Tensor, _value_of, (args, dict(kwargs)))
        found = func(*known_args, **known_kwargs)
    for own, value in zip(results, _tensors(found), strict=True):
        know(own, value)


def _value_of(tensor: Any) -> torch.Tensor | None:
    return getattr(tensor, _VALUE, None)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [own for own in tree_leaves(values) if isinstance(own, torch.Tensor)]
