"""A growing series of device scalars, copied to the host without synchronising the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_BLOCK = 4096
"""Scalars per buffer."""


class DeviceSeries:
    """Copies scalars asynchronously into pinned host memory; allocates nothing on the device."""

    def __init__(self, *, integers: bool = False) -> None:
        self._integers = integers
        self._blocks: list[torch.Tensor] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, scalar: torch.Tensor) -> None:
        """Add a scalar that the device may not have computed yet."""
        index = self._length % _BLOCK
        if index == 0:
            import torch

            # float32, because a loss that a trial computes has no more digits.
            dtype = torch.int64 if self._integers else torch.float32
            self._blocks.append(torch.empty(_BLOCK, dtype=dtype, pin_memory=scalar.is_cuda))
        # Into pinned memory, so that the copy waits in the stream and the host does not.
        self._blocks[-1][index].copy_(scalar.detach(), non_blocking=True)
        self._length += 1

    def values(self) -> list[float]:
        """All scalars so far, in order. Waits for the device."""
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return [value for block in self._blocks for value in block.tolist()][: self._length]
