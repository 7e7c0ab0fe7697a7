"""Loss parity: which trials have other losses than a reference at equal seed, data and batch.

The mean losses of each half of the training are compared. The difference is relative to the
reference's mean loss over the whole training.

- Rows that draw the same random numbers differ only in how activations are kept or data is loaded:
  they must agree to within their precision's rounding.
- Other rows train similarly but not equally: another split of the batch, precision or kernel draws
  other dropout masks, and another loop orders the data differently. They may differ by as much as
  the reference's own losses scatter from step to step. That is wide for few steps and small
  batches, so a mismatch is certain, but a match is no proof. If a loss of zero, or of twice the
  reference's, would pass too, the state is "not checked".
"""

from orchestrator.analysis.loss_parity.checks import LossCheck, loss_checks, loss_flags
from orchestrator.analysis.loss_parity.equivalence import SameLosses
from orchestrator.analysis.loss_parity.references import compared
from orchestrator.analysis.loss_parity.windows import (
    MAX_BOUND,
    ROUNDING,
    CheckState,
    LossWindow,
    loss_windows,
    mismatch_ratio,
    state_of,
)

__all__ = [
    "MAX_BOUND",
    "ROUNDING",
    "CheckState",
    "LossCheck",
    "LossWindow",
    "SameLosses",
    "compared",
    "loss_checks",
    "loss_flags",
    "loss_windows",
    "mismatch_ratio",
    "state_of",
]
