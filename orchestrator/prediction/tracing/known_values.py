"""The values of a batch's integers and conditions, on tensors without data that follow from them.

How much TRL computes depends on how many positions have a label.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

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
    results = [*tensors(output)]
    inputs = [*tensors((args, [*kwargs.values()]))]
    if func._schema.is_mutable or not inputs or any(own.is_floating_point() for own in results):
        return
    if any(_value_of(own) is None for own in inputs):
        return
    with _disable_current_modes():
        known_args, known_kwargs = tree_map_only(torch.Tensor, _value_of, (args, dict(kwargs)))
        found = func(*known_args, **known_kwargs)
    for own, value in zip(results, tensors(found), strict=True):
        know(own, value)


def _value_of(tensor: Any) -> torch.Tensor | None:
    return getattr(tensor, _VALUE, None)


def tensors(values: Any) -> Iterator[torch.Tensor]:
    """Those in an operator's arguments, or in its results."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for own in values:
            yield from tensors(own)


_aten = torch.ops.aten
_ALL = {_aten.all.default, _aten.all.dim, _aten.all.dims}


class ConditionsOfAll:
    """Which results say whether a condition holds at all positions of a batch."""

    def __init__(self) -> None:
        self._found: set[int] = set()
        """Their storages."""
        self._counts: set[int] = set()
        """Storages of sums that count true values."""

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._found

    def note(self, func: Any, args: tuple[Any, ...], output: Any) -> None:
        """Remember results as of ``mask.all()``, or of ``mask.sum() == numel``."""
        if func in _ALL:
            self._found.add(output.untyped_storage()._cdata)
        elif func is _aten.sum.default and args[0].dtype in (torch.bool, torch.int64):
            self._counts.add(output.untyped_storage()._cdata)
        elif func is _aten.eq.Scalar and args[0].untyped_storage()._cdata in self._counts:
            self._found.add(output.untyped_storage()._cdata)

    def forget(self, storage: int) -> None:
        self._found.discard(storage)
        self._counts.discard(storage)
