"""The values of a batch, and what follows from them, on tensors without data.

How much TRL computes depends on how many positions have a label. The positions of tokens around
images depend on where these are, and how large.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

_VALUE = "known_value"
"""Attribute of a tensor without data."""
_MOST_VALUES = 2**22
"""More values are those of a mask, or of logits, and decide no shape."""


def know(tensor: torch.Tensor, value: torch.Tensor | None) -> None:
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
    """Let the results be known if all inputs are."""
    results = [*tensors(output)]
    found: Iterable[torch.Tensor | None] | None = None
    if all(own.numel() <= _MOST_VALUES and own.device.type == "cpu" for own in results):
        found = known_results(func, args, kwargs)
    # An operator in place may have changed what was known.
    for own, value in zip(results, found or itertools.repeat(None), strict=False):
        know(own, value)


def known_results(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Sequence[torch.Tensor] | None:
    """Those of an operator whose inputs are all known, of which an operator in place changes the
    values; None if one is not known."""
    inputs = tensors((args, [*kwargs.values()]))
    if any(_value_of(own) is None for own in inputs) or "empty" in func._schema.name:
        return None
    with _disable_current_modes():
        known_args, known_kwargs = tree_map_only(torch.Tensor, _value_of, (args, dict(kwargs)))
        return [*tensors(func(*known_args, **known_kwargs))]


@contextmanager
def readable_scalars() -> Iterator[None]:
    """Within it, ``torch.tensor`` takes lists of scalars without data, as ``item`` reads them."""
    make = torch.tensor

    def made(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if isinstance(data, list):
            data = [own.item() if isinstance(own, torch.Tensor) else own for own in data]
        return make(data, *args, **kwargs)

    with patch.object(torch, "tensor", made):
        yield


def _value_of(tensor: Any) -> torch.Tensor | None:
    # A constant has data.
    return tensor if type(tensor) is torch.Tensor else getattr(tensor, _VALUE, None)


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
