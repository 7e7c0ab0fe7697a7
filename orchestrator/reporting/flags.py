"""Flags in words: one place for every page, note and caution."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.flags import Flag, FlagKind
from orchestrator.units import error, memory, number


@dataclass(frozen=True, slots=True)
class Wording:
    """How one kind of flag is put into words."""

    heading: str
    value: str
    """What the flag's value is, for the schema page."""
    sentence: str = ""
    """With ``{}`` in place of the value; empty for flags that never have one."""
    write: Callable[[float], str] = number
    """Writes the value for people."""
    without_value: str = ""
    """The same of a flag without a finite value; empty: the heading says it."""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def percent(share: float) -> str:
    """``0.4 %``: two significant digits."""
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:,.0f} %"


def _cannot(what: str, doing: str) -> Wording:
    failed = f"{doing} failed: the trial's log says why"
    return Wording(f"cannot {what}", "none", without_value=failed)


_whole = "{:.0f}".format
_LOSS_RATIO = "mean loss divided by the reference's"

WORDINGS: Mapping[FlagKind, Wording] = {
    FlagKind.UNSTABLE: Wording(
        "unstable",
        "half the 95 % interval of the mean step time, relative; NaN: a single step counted",
        "step time 95 % CI {}",
        error,
        "a single step counted, so its step time has no confidence interval",
    ),
    FlagKind.HOST_BOUND: Wording(
        "host-bound",
        "share of micro-batches after which the GPU ran out of work",
        "the GPU ran out of work after {} of micro-batches, so this is the host's speed",
        _percent,
        "the GPU ran out of work after most micro-batches; this is the host's speed",
    ),
    FlagKind.DATA_BOUND: Wording(
        "data-bound",
        "share of the time in which the GPU waited for its data",
        "the GPU waited for its data {} of the time, so this is the host's speed; "
        "workers of the data loader prepare it meanwhile",
        _percent,
    ),
    FlagKind.LAUNCH_BOUND: Wording(
        "launch-bound",
        "share of the time in phases that kernel launches limit",
        "kernel launches limited {} of the time, so another host may be faster or slower",
        _percent,
    ),
    FlagKind.THRASHING: Wording(
        "thrashing",
        "times that the allocator had to flush its cache",
        "flushes of the allocator's cache: {}",
        _whole,
    ),
    FlagKind.NEW_LENGTHS: Wording(
        "new lengths",
        "share of an epoch's time in which kernels are prepared for lengths that are new",
        "{} of an epoch's time goes into preparing kernels for lengths that are new; "
        "padding to a multiple, packing or another attention kernel saves it",
        _percent,
    ),
    FlagKind.SHARED_PROCESSES: Wording(
        "shared GPU",
        "number of other processes on the GPU",
        "other processes on the GPU: {}",
        _whole,
    ),
    FlagKind.SHARED_BEFORE: Wording(
        "shared GPU before the trial",
        "bytes in use on the GPU before the trial",
        "{} of the GPU's memory were in use before the trial",
        memory,
    ),
    FlagKind.SHARED_DURING: Wording(
        "shared GPU during the trial",
        "bytes of the GPU that belong neither to the CUDA context nor to the allocator",
        "{} of the GPU's memory belonged neither to the CUDA context nor to the allocator",
        memory,
    ),
    FlagKind.LOSS_MISMATCH: Wording(
        "loss mismatch",
        _LOSS_RATIO,
        "mean loss {} times the reference's",
        without_value="the losses do not match the reference",
    ),
    FlagKind.LOSS_TIMES_ACCUMULATION: Wording(
        "loss times accumulation",
        f"{_LOSS_RATIO}; it equals the accumulation",
        "mean loss {} times the reference's, like the accumulation: this model does not "
        "divide its loss by the accumulation, and its gradients are too large by the same factor",
    ),
    FlagKind.LOSS_NOT_FINITE: Wording(
        "loss not finite",
        "the first step whose loss is not finite, counted from 1",
        "the loss is not finite from step {} on",
        _whole,
    ),
    FlagKind.GRADIENTS_DIFFER: Wording(
        "gradients differ",
        "relative error of the worst tensor's gradient in a comparison with fp32",
        "the gradient of a tensor differs by {} from that of the same weights in fp32, "
        "more than rounding explains",
        percent,
        "gradients differ from those of the same weights in fp32",
    ),
    FlagKind.ACCUMULATION_SUSPECT: Wording(
        "accumulation suspect",
        "the same ratio of another row of this loop that was accumulated",
        "another row of this loop had, with accumulation, a mean loss {} times its reference's",
        without_value="another row of this loop does not match its reference with accumulation",
    ),
    FlagKind.CANNOT_EVALUATE: _cannot("evaluate", "evaluating"),
    FlagKind.CANNOT_SAVE: _cannot("save", "saving a checkpoint"),
    FlagKind.CANNOT_LOAD_BEST: _cannot("load the best", "loading the checkpoint's weights"),
    FlagKind.CANNOT_RESUME: _cannot("resume", "continuing from the checkpoint"),
    FlagKind.CANNOT_MERGE: _cannot("merge", "merging the adapter"),
    FlagKind.ROWS_LEFT_OUT: Wording(
        "rows left out",
        "share of the rows that are not trained on, because their prompts are too long",
        "{} of the rows are not trained on: their prompts leave no room for an answer",
        percent,
    ),
    FlagKind.NOT_QUANTIZED: Wording(
        "not quantized",
        "share of the frozen layers' weights that stay in 16 bits or more",
        "{} of the frozen layers' weights were not quantized; the library left them in "
        "16 bits or more",
        _percent,
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
        return wording.without_value or wording.heading
    written = dict.fromkeys((wording.write(min(finite)), wording.write(max(finite))))
    return wording.sentence.format(" to ".join(written))


def with_heading(flag: Flag) -> str:
    """What a flag says: ``unstable: step time 95 % CI ±5.1 %``."""
    return f"{heading(flag.kind)}: {describe(flag)}"


def to_json(flags: Iterable[Flag]) -> list[dict[str, Any]]:
    """Flags as plain values, with their sentences."""
    return [{"kind": own.kind.value, "value": own.value, "text": describe(own)} for own in flags]
