"""What a check is and what it says: a ``Finding`` is ok, a warning or a problem, with how to mend it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from jobs.node.checks.machine import Machine


class Severity(enum.StrEnum):
    """A warning makes some trials unsupported, slow or doubtful; a problem makes results wrong or trials fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One sentence about a node; ``mend`` says what to do, and is empty only when ok."""

    check: str = ""
    severity: Severity
    message: str
    mend: str = ""

    def of(self, check: str) -> Finding:
        """The same, said by a check."""
        return replace(self, check=check)


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A row: the name that findings carry, and the pure function that judges. No finding: it does not apply."""

    name: str
    judge: Callable[[Machine], Iterable[Finding]]


def ok(message: str) -> Finding:
    """All is well."""
    return Finding(severity=Severity.OK, message=message)


def warning(message: str, mend: str) -> Finding:
    """Some trials will be unsupported, slow or doubtful."""
    return Finding(severity=Severity.WARNING, message=message, mend=mend)


def problem(message: str, mend: str) -> Finding:
    """Results would be wrong, or trials fail."""
    return Finding(severity=Severity.PROBLEM, message=message, mend=mend)


def gib(size: float) -> str:
    """Bytes for people."""
    return f"{size / 2**30:.1f} GiB"
