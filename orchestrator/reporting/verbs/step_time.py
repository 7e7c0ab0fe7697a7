"""The forecast of a step's time in words and as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.units import number

if TYPE_CHECKING:
    from orchestrator.prediction.step_time import StepTime


def time_row(time: StepTime | None) -> dict[str, Any]:
    """Plain values, null if nothing is known. The seconds of a host-bound step are a lower bound,
    so it has no rates."""
    if time is None:
        names = ("step_bound", "step_seconds", "step_seconds_low", "step_seconds_high")
        return dict.fromkeys((*names, "samples_per_second", "tokens_per_second", "mfu"))
    is_known = time.bound != "host"
    return {
        "step_bound": time.bound,
        "step_seconds": time.seconds if is_known else None,
        "step_seconds_low": time.low,
        "step_seconds_high": time.high if is_known else None,
        "samples_per_second": time.samples_per_second if is_known else None,
        "tokens_per_second": time.tokens_per_second if is_known else None,
        "mfu": time.mfu if is_known else None,
    }


def time_words(time: StepTime) -> str:
    """One line: seconds with the interval, rates, and what bounds them."""
    if time.bound == "host":
        return f"time: host-bound, at least {time.low:.3g} s a step"
    seconds = f"{time.seconds:.3g} s a step ({time.low:.3g} to {time.high:.3g})"
    parts = [seconds, f"{number(time.samples_per_second)} samples/s"]
    if time.tokens_per_second is not None:
        parts.append(f"{time.tokens_per_second:,.0f} tokens/s")
    if time.mfu is not None:
        parts.append(f"MFU {time.mfu:.0%}")
    if time.bound == "either":
        parts.append("a slow host may take longer")
    return f"time: {', '.join(parts)}"
