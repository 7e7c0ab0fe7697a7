"""A growing series of device scalars, kept on the host without waiting for or allocating on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_BLOCK = 4096


class DeviceSeries:
    """Scalars are copied asynchronously into pinned host memory; ``values`` waits for the device."""

    def __init__(self, *, integers: bool = False) -> None:
        self._integers = integers
        self._blocks: list[torch.Tensor] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, scalar: torch.Tensor) -> None:
        """Keep a scalar that may not have been computed yet."""
        if self._length % _BLOCK == 0:
            import torch

            dtype = torch.int64 if self._integers else torch.float32
            self._blocks.append(torch.empty(_BLOCK, dtype=dtype, pin_memory=scalar.is_cuda))
        self._blocks[-1][self._length % _BLOCK].copy_(scalar.detach(), non_blocking=True)
        self._length += 1

    def values(self) -> list[float]:
        """All scalars so far, in order."""
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return [value for block in self._blocks for value in block.tolist()][: self._length]
