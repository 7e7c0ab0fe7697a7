"""Flags in words: one place for every page, note and caution."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.flags import Flag, FlagKind
from orchestrator.units import error, memory, number


@dataclass(frozen=True, kw_only=True, slots=True)
class Wording:
    """How one kind of flag is put into words."""

    heading: str
    value: str = "none"
    """What the flag's value is, for the schema page."""
    sentence: str = ""
    """With ``{}`` in place of the value; empty for flags that never have one."""
    without_value: str
    """The same of a flag without a value."""
    write: Callable[[float], str] = number
    """Writes the value for people."""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def percent(share: float) -> str:
    """``0.4 %``: two significant digits."""
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:,.0f} %"


_whole = "{:.0f}".format

_SHARED = "shared GPU"
_LOSS_RATIO = "mean loss divided by the reference's"

WORDINGS: Mapping[FlagKind, Wording] = {
    FlagKind.UNSTABLE: Wording(
        heading="unstable",
        value="half the 95 % interval of the mean step time, relative; NaN: a single step counted",
        sentence="step time 95 % CI {}",
        without_value="a single step counted, so its step time has no confidence interval",
        write=error,
    ),
    FlagKind.HOST_BOUND: Wording(
        heading="host-bound",
        value="share of micro-batches after which the GPU ran out of work",
        sentence="the GPU ran out of work after {} of micro-batches, so this is the host's speed",
        without_value="the GPU ran out of work after most micro-batches; this is the host's speed",
        write=_percent,
    ),
    FlagKind.LAUNCH_BOUND: Wording(
        heading="launch-bound",
        value="share of the time in phases that kernel launches limit",
        sentence="kernel launches limited {} of the time",
        without_value="kernel launches limited part of the time",
        write=_percent,
    ),
    FlagKind.THRASHING: Wording(
        heading="thrashing",
        value="times that the allocator had to flush its cache",
        sentence="flushes of the allocator's cache: {}",
        without_value="the allocator had to flush its cache",
        write=_whole,
    ),
    FlagKind.NEW_LENGTHS: Wording(
        heading="new lengths",
        value="share of an epoch's time in which kernels are prepared for lengths that are new",
        sentence="{} of an epoch's time goes into preparing kernels for lengths that are new; "
        "padding to a multiple, packing or another attention kernel saves it",
        without_value="kernels are prepared for each new length",
        write=_percent,
    ),
    FlagKind.SHARED_PROCESSES: Wording(
        heading=_SHARED,
        value="number of other processes on the GPU",
        sentence="other processes on the GPU: {}",
        without_value="other processes were on the GPU",
        write=_whole,
    ),
    FlagKind.SHARED_BEFORE: Wording(
        heading=f"{_SHARED} before the trial",
        value="bytes in use on the GPU before the trial",
        sentence="{} of the GPU's memory were in use before the trial",
        without_value="memory of the GPU was in use before the trial",
        write=memory,
    ),
    FlagKind.SHARED_DURING: Wording(
        heading=f"{_SHARED} during the trial",
        value="bytes of the GPU that belong neither to the CUDA context nor to the allocator",
        sentence="{} of the GPU's memory belonged neither to the CUDA context nor to the allocator",
        without_value="memory of the GPU belonged neither to the CUDA context nor to the allocator",
        write=memory,
    ),
    FlagKind.LOSS_MISMATCH: Wording(
        heading="loss mismatch",
        value=_LOSS_RATIO,
        sentence="mean loss {} times the reference's",
        without_value="the losses do not match the reference",
    ),
    FlagKind.LOSS_TIMES_ACCUMULATION: Wording(
        heading="loss times accumulation",
        value=f"{_LOSS_RATIO}; it equals the accumulation",
        sentence="mean loss {} times the reference's, like the accumulation: this model does not "
        "divide its loss by the accumulation, and its gradients are too large by the same factor",
        without_value="this model does not divide its loss by the accumulation",
    ),
    FlagKind.LOSS_NOT_FINITE: Wording(
        heading="loss not finite",
        value="the first step whose loss is not finite, counted from 1",
        sentence="the loss is not finite from step {} on",
        without_value="the loss is not finite",
        write=_whole,
    ),
    FlagKind.GRADIENTS_DIFFER: Wording(
        heading="gradients differ",
        value="relative error of the worst tensor's gradient in a comparison with fp32",
        sentence="the gradient of a tensor differs by {} from that of the same weights in fp32, "
        "more than rounding explains",
        without_value="gradients differ from those of the same weights in fp32",
        write=percent,
    ),
    FlagKind.ACCUMULATION_SUSPECT: Wording(
        heading="accumulation suspect",
        value="the same ratio of another row of this loop that was accumulated",
        sentence="another row of this loop had, with accumulation, a mean loss {} times its "
        "reference's",
        without_value="another row of this loop does not match its reference with accumulation",
    ),
    FlagKind.CANNOT_EVALUATE: Wording(
        heading="cannot evaluate", without_value="evaluating failed: the trial's log says why"
    ),
    FlagKind.CANNOT_SAVE: Wording(
        heading="cannot save", without_value="saving a checkpoint failed: the trial's log says why"
    ),
    FlagKind.CANNOT_LOAD_BEST: Wording(
        heading="cannot load the best",
        without_value="loading the checkpoint's weights failed: the trial's log says why",
    ),
    FlagKind.CANNOT_RESUME: Wording(
        heading="cannot resume",
        without_value="continuing from the checkpoint failed: the trial's log says why",
    ),
    FlagKind.CANNOT_MERGE: Wording(
        heading="cannot merge", without_value="merging the adapter failed: the trial's log says why"
    ),
    FlagKind.NOT_QUANTIZED: Wording(
        heading="not quantized",
        value="share of the frozen layers' weights that stay in 16 bits or more",
        sentence="{} of the frozen layers' weights were not quantized; the library left them in "
        "16 bits or more",
        without_value="part of the frozen layers' weights was not quantized",
        write=_percent,
    ),
}


def heading(kind: FlagKind) -> str:
    """A kind of flag in a word or two."""
    return WORDINGS[kind].heading


def describe(flag: Flag) -> str:
    """What a flag says, without its heading."""
    return description(flag.kind, [flag.value])


def description(kind: FlagKind, values: Iterable[float | None]) -> str:
    """What flags of one kind say, without their heading: ``step time 95 % CI ±5.1 %``. Several
    values are written as a range. A flag without a value has None."""
    wording = WORDINGS[kind]
    # NaN stands for a single counted step, which has no interval.
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite or not wording.sentence:
        return wording.without_value
    written = dict.fromkeys((wording.write(min(finite)), wording.write(max(finite))))
    return wording.sentence.format(" to ".join(written))


def with_heading(flag: Flag) -> str:
    """What a flag says: ``unstable: step time 95 % CI ±5.1 %``."""
    return f"{heading(flag.kind)}: {describe(flag)}"


def to_json(flags: Iterable[Flag]) -> list[dict[str, Any]]:
    """Flags as plain values, with their sentences."""
    return [{"kind": own.kind.value, "value": own.value, "text": describe(own)} for own in flags]
