"""Every operator as PyTorch dispatches it, by name and operands: unlike a profiler it leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Dispatched(TorchDispatchMode):
    """While entered, tells ``see`` each operator's name and operands before it runs; what is compiled stays compiled.

    PyTorch's profiler would register with the GPU's driver for good, whatever it is asked for: on an H200 that takes
    12 MiB and slows every launch after it.
    """

    supports_higher_order_operators = True

    def __init__(self, see: Callable[[str, Sequence[Any]], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._see = see
        self.seconds = 0.0
        """Spent on telling."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """So that a compiler does not stand back while it is entered."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        begin = time.perf_counter()
        self._see(func.name().partition(".")[0], args)
        self.seconds += time.perf_counter() - begin
        return func(*args, **(kwargs or {}))
