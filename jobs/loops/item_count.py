"""Whether a model computes with the number of items that the Trainer hands to it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

_SAME_VALUE = frozenset(
    {
        *("to", "type", "cuda", "cpu", "float", "double", "half", "bfloat16", "int", "long"),
        *("detach", "clone", "contiguous", "requires_grad_", "view", "reshape", "expand"),
        *("squeeze", "unsqueeze", "__get__", "__deepcopy__"),
    }
)
"""Functions whose result is the count itself, in another form. ``__get__`` reads an attribute."""
_COMPARISONS = frozenset(
    {"__bool__", "gt", "ge", "lt", "le", "eq", "ne", "__gt__", "__ge__", "__lt__", "__le__"}
)
"""Functions that only ask about the count, as ``if count > 0`` does."""
_NUMBERS = frozenset({"item", "tolist", "numpy", "__float__", "__int__", "__index__", "__array__"})
"""Functions that turn the count into a plain number, whose use cannot be followed further."""


class WatchedCount(torch.Tensor):
    """Notes whether anything is computed with it, by the same kernels and in the same memory."""

    _plain: torch.Tensor
    """The tensor that takes its place in every computation."""
    _uses: list[str]
    """Names of the functions that computed with it; its copies share the list."""

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of PyTorch on plain tensors, and note it if it computes a new value."""
        counts: list[WatchedCount] = []
        plain_args = _unwrapped(args, counts)
        plain_kwargs = {name: _unwrapped(value, counts) for name, value in (kwargs or {}).items()}
        result = function(*plain_args, **plain_kwargs)
        name = getattr(function, "__name__", "")
        if not counts or name in _COMPARISONS:
            return result
        # Any other result is an attribute, such as the shape, and is no use of the count.
        is_tensor = isinstance(result, torch.Tensor)
        if is_tensor and name in _SAME_VALUE:
            # Made from the original count, because a fake tensor cannot become a WatchedCount.
            with torch._C.DisableTorchFunctionSubclass():
                return watched(counts[0], result, counts[0]._uses)
        if is_tensor or name in _NUMBERS:
            counts[0]._uses.append(name)
        return result


def watched(
    count: torch.Tensor, plain: torch.Tensor | None = None, uses: list[str] | None = None
) -> WatchedCount:
    """``count``, with ``plain`` in its place in computations, and a note of what ``uses`` it."""
    shell = count.as_subclass(WatchedCount)
    shell._plain = count if plain is None else plain
    shell._uses = [] if uses is None else uses
    return shell


def is_used(count: WatchedCount) -> bool:
    """Whether anything was computed with a watched count, or with a copy of it."""
    return bool(count._uses)


def is_used_by(
    compute_loss: Callable[[Callable[..., Any], Mapping[str, Any], WatchedCount], Any],
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    count: torch.Tensor,
) -> bool:
    """Whether ``compute_loss(model, inputs, count)`` uses the count, tried without gradients. It is
    tried on fake tensors, which take no memory. Parameters that FSDP2 shards are real, because its
    hooks would gather fake ones and keep them. Compiled parts run uncompiled: their kernels would
    read memory that fake tensors do not have. A model that needs values of fake tensors raises its
    own error."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.fsdp import FSDPModule
    from torch.func import functional_call

    watched_count = watched(count)
    with torch.compiler.set_stance("force_eager"), torch.no_grad():
        if any(isinstance(module, FSDPModule) for module in model.modules()):
            compute_loss(model, inputs, watched_count)
            return is_used(watched_count)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            state = _fake({**dict(model.named_parameters()), **dict(model.named_buffers())}, mode)

            def forward(**arguments: Any) -> Any:
                return functional_call(model, state, (), arguments)

            compute_loss(forward, _fake(inputs, mode), watched_count)
    return is_used(watched_count)


def _fake(values: Mapping[str, Any], mode: Any) -> dict[str, Any]:
    return {
        name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
    }


def _unwrapped(value: Any, counts: list[WatchedCount]) -> Any:
    """``value`` with plain tensors in place of watched counts, which are added to ``counts``."""
    if isinstance(value, WatchedCount):
        counts.append(value)
        return value._plain
    if type(value) in (list, tuple):
        return type(value)(_unwrapped(item, counts) for item in value)
    return value
