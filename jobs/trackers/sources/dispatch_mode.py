"""Sees every operator as PyTorch dispatches it; unlike a profiler it leaves nothing behind."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class OperatorListener(TorchDispatchMode):
    """While entered, calls ``listener`` with each operator's name and arguments before it runs.
    Compiled code stays compiled. PyTorch's profiler would stay registered with the GPU's driver: on
    an H200 that takes 12 MiB and slows every later launch."""

    supports_higher_order_operators = True

    def __init__(self, listener: Callable[[str, Sequence[Any]], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._listener = listener
        self.seconds = 0.0  # time spent in ``listener``

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: torch.compile then compiles while this mode is active."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # The listener's own time is no part of the trial's, so it is counted separately.
        begin = time.perf_counter()
        self._listener(func.name().partition(".")[0], args)
        self.seconds += time.perf_counter() - begin
        return func(*args, **(kwargs or {}))
