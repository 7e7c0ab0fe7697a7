"""The types of checks and findings. A finding is ok, a warning or a problem, with its fix."""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Self

from jobs.node.checks.machine import Machine


class Severity(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"  # some trials will be unsupported or slow, or flagged as unreliable
    PROBLEM = "problem"  # results would be wrong, or trials fail


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One sentence about a node."""

    check: str = ""
    severity: Severity
    message: str
    fix: str = ""  # what to do about it; empty only when ok

    def of(self, check: str) -> Self:
        """The same finding under the name of a check."""
        return replace(self, check=check)


Check = Callable[[Machine], Iterable[Finding]]
"""A pure function that judges a machine; it finds nothing if it does not apply."""


def ok(message: str) -> Finding:
    return Finding(severity=Severity.OK, message=message)


def warning(message: str, fix: str) -> Finding:
    return Finding(severity=Severity.WARNING, message=message, fix=fix)


def problem(message: str, fix: str) -> Finding:
    return Finding(severity=Severity.PROBLEM, message=message, fix=fix)


def gib(size: float) -> str:
    """Bytes for people: ``139.8 GiB``."""
    return f"{size / 2**30:.1f} GiB"


def dotted(version: tuple[int, int]) -> str:
    """A version of CUDA for people: ``12.8``."""
    return f"{version[0]}.{version[1]}"
