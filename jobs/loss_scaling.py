"""Whether an accumulated training has the loss, and so the gradients, of one without accumulation.

Each micro-batch must contribute its share of the step's mean loss: its own mean divided by the
accumulation, or its sum divided by the items of the step. Either the model or the loop divides.
"""

import math
from typing import Literal

from jobs.flags import Flag, FlagKind

LossScaling = Literal["native", "divided", "corrected"]
"""native: the model itself divides the loss by the number of items of the whole step.
divided: the training loop divides each micro-batch's mean loss by the accumulation.
corrected: the same, although transformers 5.17 to 5.23 took the model for a native one."""

TOLERANCE = 0.02
"""By how much the loss of an accumulated step may differ, relative. Only rounding can: samples and
random draws are the same. In bf16 it is at most 2**-8."""


def scaling_flag(ratio: float | None, accumulation: int) -> Flag | None:
    """The flag of a loss that is ``ratio`` times what it is without accumulation; None: unknown."""
    if ratio is None or math.isnan(ratio) or abs(ratio - 1) <= TOLERANCE:
        return None
    # The usual mistake has a flag of its own: neither model nor loop divides by the accumulation.
    if abs(ratio / accumulation - 1) <= TOLERANCE:
        return Flag(FlagKind.LOSS_TIMES_ACCUMULATION, ratio)
    return Flag(FlagKind.LOSS_MISMATCH, ratio)
