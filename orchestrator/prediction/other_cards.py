"""A GPU model whose constants were not measured: how much wider the interval is there.

Unknown there: the CUDA context and kernels, which attention kernel PyTorch picks, and the
workspaces of libraries. The tensors of the model do not depend on the card.
"""

from __future__ import annotations

from orchestrator.prediction.prediction import Elsewhere, Figure
from orchestrator.prediction.replay import ReplayedPeaks
from orchestrator.units import MIB

LARGEST_CONTEXT_BYTES = 1_343 * MIB
"""Context and kernels of a V100, the largest published: the Hugging Face guide's table, 2022."""
SMALLEST_CONTEXT_BYTES = 100 * MIB
"""A bare context with lazily loaded kernels is at least this large."""


def elsewhere(
    allocated: Figure, reserved: Figure, device: Figure, peaks: ReplayedPeaks
) -> Elsewhere:
    """The needs on a card of another model, from the figures on the measured one.

    Another attention kernel may need no workspaces, or twice those of the measured kernel.
    """
    # Context and libraries: what the device holds beyond the allocator.
    outside = device.high - reserved.high
    # Other libraries beside the context (DeepSpeed, managed memory) stay as measured.
    context = max(outside, LARGEST_CONTEXT_BYTES)
    if outside > LARGEST_CONTEXT_BYTES:
        context = outside + LARGEST_CONTEXT_BYTES // 2
    # A kernel without workspaces, and the smallest context of any card.
    least = allocated.low - peaks.kernel_workspaces + SMALLEST_CONTEXT_BYTES
    return Elsewhere(least=least, high=reserved.high + peaks.kernel_workspaces + context)
