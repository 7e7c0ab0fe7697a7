"""What became of a sweep under a random killer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

CHECKS: Mapping[str, str] = {
    "lost": "finished trials lost or changed",
    "repeated": "finished trials started again",
    "without_row": "planned trials without exactly one row",
    "left_over": "processes left 20 s after their driver's end",
    "temporary": "temporary files left after the sweep",
    "hangs": "waits longer than the stated bound",
    "tracebacks": "drivers that ended in a traceback",
    "unexpected": "strikes with another effect than promised",
    "unreadable": "reads of tables and reports that failed",
}
"""Each list of a ``SweepOutcome`` that has to be empty, and what is in it."""


@dataclass(kw_only=True)
class Struck:
    """One strike, and what followed."""

    name: str
    seconds: float = 0.0
    """Until the next record, or the driver's end."""
    statuses: list[int] = field(default_factory=list)
    """The driver's exit status, if it ended before another record."""


@dataclass(kw_only=True)
class SweepOutcome:
    """What became of one sweep. Each list of ``CHECKS`` has to be empty."""

    trials: int
    drivers: int = 0
    reads: int = 0
    strikes: list[Struck] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    without_row: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def wrong(self) -> Iterator[str]:
        """Everything that did not hold."""
        for name in CHECKS:
            for what in getattr(self, name):
                yield f"{name}: {what}"

    def line(self) -> str:
        """The sweep in one line."""
        struck = ", ".join(f"{strike.name} ({strike.seconds:.0f} s)" for strike in self.strikes)
        return f"{self.trials} trials, {self.drivers} drivers, {self.reads} reads; {struck}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, which ``from_json`` reads."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The outcome that ``to_json`` has written."""
        strikes = [Struck(**strike) for strike in values["strikes"]]
        return cls(**{**values, "strikes": strikes})
