"""The gain over the default configuration, in words."""

from __future__ import annotations

from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.gain import Gain
from orchestrator.units import memory, number

_SAME = 0.05
"""Ratios within this of 1 are called the same: repeats of a trial differ by as much."""


def headline(gain: Gain) -> str:
    """``5.0 × the default's throughput at half its memory``."""
    if gain.is_default:
        return "The default configuration"
    return f"{_speed(gain.speed_ratio)} {_memory(gain.memory_ratio)}"


def comparison(dataset: Dataset, gain: Gain) -> str:
    """What the headline compares with: the default's label and figures."""
    default = gain.default.configuration
    figures = f"{number(default.samples_per_second)} samples/s in {memory(default.memory_bytes)}"
    line = f"Default: {dataset.label(default.choices)}, {figures}"
    if gain.default.is_inferred:
        line = f"{line}, inferred"
    if not gain.is_same_batch:
        line = f"{line}; it was not measured at this effective batch"
    return line


def sentence(dataset: Dataset, gain: Gain) -> str:
    """Headline, candidate and default in one sentence."""
    candidate = dataset.label(gain.candidate.configuration.choices)
    return f"{headline(gain)}: {candidate}. {comparison(dataset, gain)}."


def _speed(ratio: float) -> str:
    if abs(ratio - 1) <= _SAME:
        return "The default's throughput"
    # Two digits are what a reader remembers.
    return f"{ratio:.2g} × the default's throughput" if ratio < 1 else _times(ratio)


def _times(ratio: float) -> str:
    if ratio >= 9.95:
        return f"{ratio:.0f} × the default's throughput"
    return f"{ratio:.1f} × the default's throughput"


def _memory(ratio: float) -> str:
    if abs(ratio - 1) <= _SAME:
        return "in the same memory"
    if 0.45 <= ratio <= 0.55:
        return "at half its memory"
    if ratio < 1:
        return f"at {100 * ratio:.0f} % of its memory"
    return f"at {ratio:.1f} × its memory"
