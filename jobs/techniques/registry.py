"""The registry of techniques: every axis, and what tables and plans must know about its rows.

A module adds to it when it is imported. ``jobs.techniques`` imports those that belong to this
project; a user's own code may add more.
"""

from __future__ import annotations

from jobs.record import Column
from jobs.techniques.variant import Axis

AXES: dict[str, Axis] = {}
"""Name -> axis. Variants are merged in this order: if two set the same argument, the later axis
wins."""
COLUMNS: list[Column] = []
"""Columns that only some loops measure: ``Trained.columns`` has their values."""
INCOMPATIBLE: dict[str, tuple[tuple[str, ...], str]] = {}
"""Name of a rule -> the traits that do not go together, and why."""


def add(*axes: Axis) -> None:
    """Add axes after those that are there."""
    AXES.update((axis.name, axis) for axis in axes)
