"""Operators on tensors without data, whose results are made again from the shapes of their inputs.

FakeTensorMode remembers results too, but to find one and to make it again took most of a trace.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_DEPENDS_ON_DATA = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.inplace_view,
}
_NAMESPACES = ("aten", "bitsandbytes")


class _Made(NamedTuple):
    """A tensor that an operator makes."""

    state: Mapping[str, Any]
    """Its attributes, as of every new tensor of its ``FakeTensorMode``."""
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    offset: int
    owner: int | None
    """Position of the argument whose memory it has; None if it has its own."""

    def again(self, args: tuple[Any, ...]) -> Any:
        with torch._C._DisableTorchDispatch():
            empty = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
            if self.owner is not None:
                memory = args[self.owner].untyped_storage()
                empty.set_(memory, self.offset, self.shape, self.stride)
        # As ``FakeTensor.__new__`` does it, without setting and checking the same attributes again.
        own: Any = torch.Tensor._make_subclass(
            FakeTensor, empty, False, dispatch_device=True, device_for_backend_keys=self.device
        )
        # bitsandbytes asks for addresses, and does not use them.
        torch._C._set_warn_deprecated_on_mutable_data_ptr(own)
        vars(own).update(self.state)
        return own


Result = int | _Made | tuple[_Made | None, ...] | list[_Made | None] | None
"""The argument at a position, a tensor or several; None: the operator runs each time."""


class _Mode(FakeTensorMode):
    """Shared by a deep copy of its tensors. A copied mode would free its constants once more."""

    def __deepcopy__(self, memo: Any) -> "_Mode":
        return self


class KnownResults:
    """Runs operators: one whose result follows from shapes and types, once for each of them."""

    def __init__(self) -> None:
        self.mode = _Mode(allow_non_fake_inputs=True)
        """Of the tensors that are made again."""
        self._known: dict[tuple[Any, ...], Result] = {}

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        parts: list[Any] = [func, torch.get_default_dtype()]
        if not (_depends_on_shapes(func) and _describe((*args, *kwargs.items()), parts)):
            return func(*args, **kwargs)
        key = tuple(parts)
        known = self._known.get(key)
        if known is None:
            output = func(*args, **kwargs)
            if key not in self._known:
                self._known[key] = _result(func, args, output)
            return output
        if isinstance(known, int):
            return args[known]
        if isinstance(known, _Made):
            return known.again(args)
        made = (None if own is None else own.again(args) for own in known)
        return list(made) if isinstance(known, list) else tuple(made)


@functools.cache
def _depends_on_shapes(func: Any) -> bool:
    """Whether the shapes and types of its inputs decide an operator's result."""
    return func.namespace in _NAMESPACES and _DEPENDS_ON_DATA.isdisjoint(func.tags)


def _describe(values: Iterable[Any], parts: list[Any]) -> bool:
    """Append what a result depends on to ``parts``, which begin with the operator. Returns whether
    it depends on nothing else. The values of a tensor with data, as of a table of codes, decide no
    shape."""
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None or value.layout is not torch.strided:
                return False
            parts += value.shape, value.stride(), value.storage_offset()
            parts += value.dtype, value.fake_device
        elif kind is tuple or kind is list:
            parts.append(len(value))
            if not _describe(value, parts):
                return False
        elif isinstance(value, torch.Tensor):
            func = parts[0]
            if kind is not torch.Tensor or func.is_view or func._schema.is_mutable:
                return False
            parts += kind, value.shape, value.stride(), value.dtype, value.device
        else:
            # 1 and 1.0 are equal, but may make tensors of different types.
            parts += kind, value
    return True


def _result(func: Any, args: tuple[Any, ...], output: Any) -> Result:
    if isinstance(output, (tuple, list)):
        made = type(output)(None if own is None else _made(own, args) for own in output)
        is_whole = [own is None for own in made] == [own is None for own in output]
        return made if is_whole else None
    if func._schema.is_mutable:
        return next((position for position, own in enumerate(args) if own is output), None)
    return _made(output, args)


def _made(output: Any, args: tuple[Any, ...]) -> _Made | None:
    """None for anything but a tensor that is equal if it is made again."""
    if type(output) is not FakeTensor or output.constant is not None:
        return None
    memory = output.untyped_storage()._cdata
    tensors = [(at, own) for at, own in enumerate(args) if isinstance(own, torch.Tensor)]
    owners = [at for at, own in tensors if own.untyped_storage()._cdata == memory]
    with torch._C._DisableTorchDispatch():
        empty = torch.empty(0, device="meta")
        template = FakeTensor(output.fake_mode, empty, output.fake_device)
    made = _Made(
        vars(template),
        output.shape,
        output.stride(),
        output.dtype,
        output.fake_device,
        int(output.storage_offset()),
        owners[0] if owners else None,
    )
    again = made.again(args)
    is_equal = _properties(again) == _properties(output)
    return made if is_equal else None


def _properties(tensor: Any) -> tuple[Any, ...]:
    keys = torch._C._dispatch_key_set(tensor)
    memory = tensor.untyped_storage().nbytes()
    return keys, memory, tensor.fake_device, tensor.requires_grad, tensor.is_conj()
