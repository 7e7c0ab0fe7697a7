"""What comparisons of a trial's gradients, and of its accumulated loss, say; plain data."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from jobs.flags import Flag, FlagKind
from jobs.record import Column


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientCheck:
    """The gradients of one optimizer step, compared with those of the same weights in fp32.
    ``COLUMNS`` explains each figure. The worst tensor is an unresolved one only if its error is
    beyond the bound."""

    tensors: int
    unresolved: int
    worst: str
    error: float
    bound: float
    cosine: float
    number_format: str
    typical: float

    @property
    def agrees(self) -> bool:
        """Whether rounding explains the differences of all tensors."""
        return self.error <= self.bound

    def measurements(self) -> dict[str, Any]:
        """Column -> value."""
        return {f"gradient_{name}": value for name, value in asdict(self).items()}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self | None:
        """The check in a row of the table; None if it has none."""
        if row.get("gradient_tensors") is None:
            return None
        return cls(**{name: row[f"gradient_{name}"] for name in cls.__slots__})


COLUMNS = (
    Column.count(
        "gradient_tensors", "Tensors whose gradients were compared with a reference in fp32"
    ),
    Column.count(
        "gradient_unresolved",
        "How many of these are so nearly zero that rounding alone may change them by 100 %",
    ),
    Column.text("gradient_worst", "The tensor whose error is the largest share of its bound"),
    Column.number(
        "gradient_error",
        "Norm of the difference between this tensor's gradient and its reference, divided by the "
        "reference's norm",
    ),
    Column.number("gradient_bound", "The largest such error that the number format explains"),
    Column.number(
        "gradient_cosine", "Cosine of the angle between this tensor's gradient and its reference"
    ),
    Column.text("gradient_number_format", "The number format that explains errors of gradients"),
    Column.number("gradient_typical", "The median error of all tensors"),
    Column.seconds("gradient_seconds", "Time that the comparison of gradients took"),
    Column.text("gradients_missing", "Why gradients that should have been compared were not"),
)


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
