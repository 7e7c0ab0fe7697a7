"""Why a trial is run: for the search, or to check what the search has found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Purpose(enum.StrEnum):
    """Why a trial is run. Only trials of the search are ranked; the others check them."""

    SEARCH = "search"
    CAP_CHECK = "cap_check"
    """A pick again, its GPU's memory capped to the budget: does it fit?"""
    TIE_BREAK = "tie_break"
    """Close configurations again, interleaved on one GPU: which is faster?"""
    PROFILE = "profile"
    """A configuration again, to see where its memory and time go."""


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
    """Rounds of the tie-break before this one."""
