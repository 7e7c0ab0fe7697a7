"""Compares calibrated GPUs: one that is slower than others of its model is faulty or throttled."""

import operator
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobs.node.checks.findings import Finding, ok, warning

Values = Mapping[str, Any]  # a ``jobs.node.calibration.Calibration`` as plain values


def judge(calibrations: Sequence[Values]) -> Iterator[Finding]:
    """A finding for each GPU, compared with the fastest of its model."""
    for calibration in calibrations:
        name = f"{calibration['device']} {calibration['uuid'][:12]}".strip()
        figures = _figures(calibration)
        rate, slowdown = _largest_slowdown(calibration, calibrations, max)
        if calibration["slowed"]:
            yield warning(
                f"{name} is throttled under load: {', '.join(calibration['slowed'])}; {figures}",
                "check its cooling and power supply; leave it out with CUDA_VISIBLE_DEVICES until "
                "then",
            )
        elif slowdown > 0.05:  # healthy GPUs of one model differ by less
            yield warning(
                f"{name} is {slowdown:.0%} slower than the fastest of its model at {rate}; "
                f"{figures}",
                "check which processes use it, its clocks (nvidia-smi -q -d CLOCK,PERFORMANCE) and "
                "its power limit",
            )
        else:
            yield ok(f"{name}: {figures}")


def of_links(figures: Sequence[Values]) -> Iterator[Finding]:
    """A finding for each collective operation: its time by size, and the rate of the largest."""
    for operation in dict.fromkeys(own["operation"] for own in figures):
        of_operation = [own for own in figures if own["operation"] == operation]
        times = [
            f"{own['bytes'] / 2**20:g} MiB in {1e3 * own['seconds']:.3g} ms" for own in of_operation
        ]
        rate = f"{of_operation[-1]['bus_bytes_per_second'] / 1e9:,.3g} GB/s"
        yield ok(f"{operation}: {', '.join(times)} ({rate} from each GPU)")


def unfit(calibrations: Sequence[Values], max_slowdown: float) -> dict[int, str]:
    """Index of a GPU that must not measure -> why: throttled, or slower than its model's median."""
    reasons: dict[int, str] = {}
    for index, calibration in enumerate(calibrations):
        rate, slowdown = _largest_slowdown(calibration, calibrations, statistics.median)
        if calibration["slowed"]:
            reasons[index] = f"it is throttled under load: {', '.join(calibration['slowed'])}"
        elif slowdown > max_slowdown:
            reasons[index] = f"it is {slowdown:.0%} slower than the median of its model at {rate}"
    return reasons


def _largest_slowdown(
    calibration: Values,
    calibrations: Sequence[Values],
    reference: Callable[[Iterable[float]], float],
) -> tuple[str, float]:
    """The rate with the largest slowdown from the ``reference`` of its model, and that share."""
    same_model = [_rates(c) for c in calibrations if c["device"] == calibration["device"]]
    # 0 is as fast as the reference, 0.1 is 10 % slower.
    slowdowns = {
        name: 1 - value / reference([rates[name] for rates in same_model])
        for name, value in _rates(calibration).items()
    }
    return max(slowdowns.items(), key=operator.itemgetter(1))


def _rates(calibration: Values) -> dict[str, float]:
    return {**calibration["flops_per_second"], "copy": calibration["copy_bytes_per_second"]}


def _figures(calibration: Values) -> str:
    """The rates in one line: ``fp32 50, bf16 790 TFLOP/s, 4,000 GB/s copied, ...``."""
    products = ", ".join(
        f"{name} {rate / 1e12:.3g}" for name, rate in calibration["flops_per_second"].items()
    )
    copied = f"{calibration['copy_bytes_per_second'] / 1e9:,.0f} GB/s copied"
    figures = f"{products} TFLOP/s, {copied}"
    if calibration["uuid"]:  # a GPU
        clock = calibration["clock_mhz"]
        figures += f", {clock} MHz at {calibration['temperature_celsius']} °C"
    return figures
