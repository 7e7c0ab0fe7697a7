"""What a comparison of a trial's gradients with a reference says; plain data, and its columns."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

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
