"""Why a trial is run: for the search, or to check what the search has found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Purpose(enum.StrEnum):
    """Why a trial is run. Only trials of the search are ranked; the others check them."""

    SEARCH = "search"
    CAP_CHECK = "cap_check"
    """Repeats a budget's pick under a memory cap of the budget's size: does it fit?"""
    TIE_BREAK = "tie_break"
    """Repeats close configurations in turn on one GPU: which is faster?"""
    PROFILE = "profile"
    """Repeats a configuration to see where its memory and time go."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowUp:
    """Which finished trial a trial measures again, and why."""

    follows_trial: str
    """That trial's id."""
    purpose: Purpose
    compared_with: tuple[str, ...] = ()
    """Ids of the trials that a tie-break compares, this one's included. One slot runs all their
    rounds in a row."""
    round: int = 0
    """Number of this round of the tie-break, from 0."""
