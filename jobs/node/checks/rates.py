"""Calibrated devices beside each other: a GPU slower than its like is sick, hot or held down."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.node.checks.base import Finding, ok, warning

SLOWER = 0.05
"""GPUs of one model agree more closely than this when they are well."""


def judge(calibrations: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """A finding for each ``Calibration``, as plain values, compared with the fastest of its model."""
    for one in calibrations:
        name = f"{one['device']} {one['uuid'][:12]}".strip()
        likes = [_rates(other) for other in calibrations if other["device"] == one["device"]]
        behind = {
            rate: 1 - value / max(like[rate] for like in likes)
            for rate, value in _rates(one).items()
        }
        worst = max(behind, key=lambda rate: behind[rate])
        if one["slowed"]:
            yield warning(
                f"{name} is held down under load: {', '.join(one['slowed'])}; {_figures(one)}",
                "look to its cooling and power supply; keep it out with CUDA_VISIBLE_DEVICES until then",
            )
        elif behind[worst] > SLOWER:
            yield warning(
                f"{name} is {behind[worst]:.0%} slower than the fastest of its model at {worst}; {_figures(one)}",
                "see who else uses it, its clocks (nvidia-smi -q -d CLOCK,PERFORMANCE) and its power limit",
            )
        else:
            yield ok(f"{name}: {_figures(one)}")


def unfit(calibrations: Sequence[Mapping[str, Any]], slower: float) -> dict[int, str]:
    """Place of a GPU that must not measure -> why: it is held down, or slower than the median of its model by more.

    The median, not the fastest: two of eight may be lucky, the half of them cannot be sick unseen.
    """
    found: dict[int, str] = {}
    for place, one in enumerate(calibrations):
        likes = [_rates(other) for other in calibrations if other["device"] == one["device"]]
        behind = {
            rate: 1 - value / statistics.median(like[rate] for like in likes)
            for rate, value in _rates(one).items()
        }
        worst = max(behind, key=lambda rate: behind[rate])
        if one["slowed"]:
            found[place] = f"it is held down under load: {', '.join(one['slowed'])}"
        elif behind[worst] > slower:
            found[place] = (
                f"it is {behind[worst]:.0%} slower than the median of its model at {worst}"
            )
    return found


def _rates(calibration: Mapping[str, Any]) -> dict[str, float]:
    return {**calibration["flops_per_second"], "copy": calibration["copy_bytes_per_second"]}


def _figures(calibration: Mapping[str, Any]) -> str:
    products = ", ".join(
        f"{name} {rate / 1e12:.3g}" for name, rate in calibration["flops_per_second"].items()
    )
    copied = f"{calibration['copy_bytes_per_second'] / 1e9:,.0f} GB/s copied"
    warm = f", {calibration['clock_mhz']} MHz at {calibration['temperature_celsius']} °C" * bool(
        calibration["uuid"]
    )
    return f"{products} TFLOP/s, {copied}{warm}"
