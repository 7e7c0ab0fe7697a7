"""The wall clock of a chaos run's driver, which can jump. Files keep the system's time."""

from __future__ import annotations

import time

from tests.chaos.control import Control


def install() -> None:
    """Let ``time.time`` be ahead, or behind, by what the control folder says."""
    control, real = Control.here(), time.time
    time.time = lambda: real() + control.clock()
