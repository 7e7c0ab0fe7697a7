"""Seconds of a training step on a card: a roofline of its kernels, by kind of operation.

A kernel takes the longer of two times at the card's full rates: that of its arithmetic, and that
of its bytes. Kernels of a kind reach a share of these rates, their efficiency. Tiles of a product
that do not fill all multiprocessors cost as much as full ones (``tiles.py``), and each score of
attention an exponential. Between two steps the GPU waits for the next batch. If the host needs
longer to launch all kernels than the card to run them, the step is host-bound: then only an
interval is known, from the card's own time to that of a slow host. ``efficiencies.yaml`` has what
was learned from recorded runs.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.time.operations import (
    LIBRARY_OPTIMIZER,
    OPTIMIZER,
    UPDATES,
    StepWork,
)
from orchestrator.prediction.time.tiles import tiled_flop

_FILE = Path(__file__).with_name("efficiencies.yaml")
Bound = Literal["gpu", "host", "either"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTime:
    """The seconds of an optimizer step, and the rates that follow."""

    seconds: float
    """Of the GPU: the step takes longer if it is host-bound."""
    low: float
    high: float
    """With a slow host, if hosts can be the slower part."""
    host_seconds: float
    """Time in which a usual host launches the kernels."""
    bound: Bound
    """gpu, host, or either: that depends on the host."""
    samples: float
    tokens: int
    mfu: float | None
    """Model flop per second, as a share of the card's rate; None for a format without one."""

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds

    @property
    def tokens_per_second(self) -> float | None:
        """With padding; None for images."""
        return self.tokens / self.seconds if self.tokens else None

    @property
    def likely_seconds(self) -> float:
        """With a usual host, which may be slower than the GPU."""
        return max(self.seconds, self.host_seconds)

    @property
    def likely_seconds_per_sample(self) -> float:
        return self.likely_seconds / self.samples


def step_time(step: StepWork, gpu: Gpu) -> StepTime | None:
    """None for a card whose rates are not known."""
    if not gpu.flops_per_second or not gpu.bytes_per_second:
        return None
    constants = learned()
    full = full_rate_seconds(step, gpu)
    launches = {
        "seconds_per_kernel": step.work.launches(),
        "seconds_per_optimizer_kernel": step.work.launches(OPTIMIZER),
        "seconds_per_library_update": step.work.launches(LIBRARY_OPTIMIZER),
    }
    seconds = sum(own / constants["efficiencies"].get(kind, 0.65) for kind, own in full.items())
    seconds += sum(constants[name] * own for name, own in launches.items())
    host = sum(launches.values()) * constants["host_seconds_per_kernel"]
    # The GPU waits between two steps, and for kernels that are prepared, whatever they take.
    plans = any("cudnn attention" in kind for kind in step.work.by_kind)
    waits = step.new_shapes * constants["seconds_per_new_shape"]["cudnn" if plans else "others"]
    between = constants["seconds_per_step"] + waits
    # The errors of other cards were never measured.
    times = 1 if gpu.name in constants["compared"] else 2
    own = interval(seconds, host, between, is_compiled=step.is_compiled, times=times)
    return StepTime(
        seconds=seconds + between,
        low=own.low,
        high=own.high,
        host_seconds=host + waits,
        bound=own.bound,
        samples=step.samples,
        tokens=step.tokens,
        mfu=_mfu(step, gpu, seconds + between),
    )


class Interval(NamedTuple):
    """Of the seconds of a step, and what they depend on."""

    low: float
    high: float
    bound: Bound


def interval(
    kernels: float, host: float, between: float, *, is_compiled: bool, times: float = 1
) -> Interval:
    """Of a step whose kernels take the GPU so many seconds, and a usual host so many to launch, and
    ``between`` whose steps both wait. ``times``: how much wider it is than for recorded cards."""
    constants = learned()
    fastest, slowest = constants["host_spread"]
    below, above = constants["errors"]["compiled" if is_compiled else "eager"]
    low = (kernels + between) / (1 + times * below)
    high = (kernels + between) * (1 + times * above)
    if kernels >= slowest * host:
        return Interval(low, high, "gpu")
    high = max(high, slowest * host + between)
    return Interval(low, high, "host" if kernels < fastest * host else "either")


PRODUCTS = " products"
SCORES = "scores"
"""Exponentials of attention, each of which a multiprocessor's special units compute."""
DROPPED = "dropped scores"
"""Numbers that dropout draws for scores, learned by the same rate."""
MASKED = "masked scores"
"""Those to which a mask is added, learned by the same rate."""
_SCORES_PER_SECOND = 16 * 1.7e9
"""Of a multiprocessor: 16 exponentials a cycle."""
_CACHED = 0.5
"""Share of the bytes that kernels find in the GPU's cache."""
_CACHE_BYTES_PER_SECOND = 4.3e10
"""Of a multiprocessor from the cache: 5.7 TB/s of an H100's 132."""
_OF_MEMORY = {kind: kind for kind in ("fused", "reductions", "copies")}
_OF_MEMORY |= dict.fromkeys(UPDATES, OPTIMIZER)
"""Kind -> as what it is learned; others that move bytes are ``elementwise``."""


def full_rate_seconds(step: StepWork, gpu: Gpu) -> dict[str, float]:
    """Learned kind of operation -> the seconds of all its kernels at the card's full rates."""
    seconds: defaultdict[str, float] = defaultdict(float)
    cached = _CACHED / (_CACHE_BYTES_PER_SECOND * gpu.multiprocessors)
    seconds_per_byte = (1 - _CACHED) / gpu.bytes_per_second + cached
    for kind, rows in step.work.by_kind.items():
        times = rows[:, 2]
        learned_kind, arithmetic = _arithmetic(kind, rows, step.formats, gpu)
        if "attention" in kind:
            for column, part in enumerate((SCORES, DROPPED, MASKED), start=3):
                seconds[part] += float(rows[:, column] @ times) / scores_per_second(gpu)
        each = np.maximum(rows[:, 1] * seconds_per_byte, arithmetic)
        seconds[learned_kind] += float((each * times).sum())
    return dict(seconds)


def _arithmetic(
    kind: str, rows: NDArray[Any], formats: Mapping[str, str], gpu: Gpu
) -> tuple[str, NDArray[Any] | float]:
    """The kind by which an efficiency is learned, and the seconds of each kernel's arithmetic."""
    traced_format, _, name = kind.partition(" ")
    if not name:
        return _OF_MEMORY.get(kind, "elementwise"), 0.0
    is_product = kind.endswith(PRODUCTS)
    # Attention never computes in TF32.
    computed = formats.get(traced_format, traced_format) if is_product else traced_format
    bits = "16-bit" if computed in ("bf16", "fp16") else computed
    flop = rows[:, 0]
    if name == PRODUCTS.strip():
        # Tiles compute beyond a product's own sizes.
        tiled = tiled_flop(rows[:, 3:], gpu.multiprocessors, fills=computed != "fp32")
        flop = np.maximum(flop, tiled)
    return f"{bits} {name if is_product else 'attention'}", flop / _rate(gpu, computed)


def scores_per_second(gpu: Gpu) -> float:
    return _SCORES_PER_SECOND * gpu.multiprocessors


def _rate(gpu: Gpu, number_format: str) -> float:
    """A format that the card lacks is computed in 32 bits."""
    rates = gpu.flops_per_second
    return rates.get(number_format, rates["fp32"])


def _mfu(step: StepWork, gpu: Gpu, seconds: float) -> float | None:
    products = [kind for kind in step.work.by_kind if kind.endswith(PRODUCTS)]
    if not products:
        return None
    main = max(
        products, key=lambda kind: float(np.prod(step.work.by_kind[kind][:, (0, 2)], 1).sum())
    )
    number_format = main.partition(" ")[0]
    rate = _rate(gpu, step.formats.get(number_format, number_format))
    return step.work.model_flop / seconds / rate


@functools.cache
def learned() -> dict[str, Any]:
    """What ``efficiencies.yaml`` has."""
    return yaml.safe_load(_FILE.read_text(encoding="utf-8"))
