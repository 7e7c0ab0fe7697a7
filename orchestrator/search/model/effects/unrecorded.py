"""Expected effects of techniques without a recorded table: by their traits, else by their axis.

These are assumptions with large deviations. A recorded table of any model replaces them.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.search.model.effects.similar_values import is_share, parsed

SLOPE_OF_MEMORY = 2.0
"""Effect on the memory of a sample / on all memory of a trial, about half of which is
activations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """The expected effect of one technique, compared with the default of its axis."""

    log_time: float = 0.0
    """Logarithm of the factor on the seconds of a sample."""
    deviation: float = 0.35
    """Standard deviation of ``log_time`` between models."""
    log_memory: float = 0.0
    """Logarithm of the factor on the memory of a trial."""
    memory_deviation: float = 0.35
    """Standard deviation of ``log_memory`` between models."""
    overhead_seconds: float = 0.0
    """Seconds that a trial with this technique takes besides its steps, more than the default."""
    models: int = 0
    """Number of models that it was measured on."""
    log_sample_memory: float | None = None
    """Logarithm of the factor on the memory of each sample, which grows with the micro-batch; None
    if it was not recorded."""
    sample_memory_deviation: float = 0.0
    """Standard deviation of ``log_sample_memory`` between models."""

    def of_sample(self) -> tuple[float, float]:
        """Expected logarithm of the factor on the memory of each sample, and its deviation."""
        if self.log_sample_memory is not None:
            return self.log_sample_memory, self.sample_memory_deviation
        mean = SLOPE_OF_MEMORY * self.log_memory
        # The ratio itself is uncertain by half of it: how much of its memory a model has in
        # activations differs.
        return mean, math.hypot(mean / 2, SLOPE_OF_MEMORY * self.memory_deviation)


_COMPILERS = frozenset({"compiled", "regional"})
"""Traits of techniques that compile."""
# PyTorch 2 (Ansel et al., 2024) reports a speedup of training by 1.41 as the geometric mean of its
# benchmarks. The seconds are recorded.
_COMPILED = Effect(
    log_time=-0.3, deviation=0.25, log_memory=-0.1, memory_deviation=0.3, overhead_seconds=45.0
)
BY_TRAIT: Mapping[str, Effect] = {
    # One compiled block takes a fraction of the time of the whole graph.
    "regional": replace(_COMPILED, overhead_seconds=11.0),
    "compiled": _COMPILED,
    # In every step, gradients and weights cross the bus, and the host updates the weights. In
    # recorded runs, the host limits these trials, and they are 3 to 10 times slower.
    "offloaded_optimizer": Effect(
        log_time=1.65, deviation=0.45, log_memory=-0.4, memory_deviation=0.3, overhead_seconds=6.0
    ),
    "activation_budget": Effect(
        log_time=0.15, deviation=0.1, log_memory=-0.5, memory_deviation=0.25
    ),
    # One more forward pass. A backward pass takes about two forward passes, so this is at most a
    # third of the time of the passes.
    "checkpointing": Effect(log_time=0.25, deviation=0.15, log_memory=-0.6, memory_deviation=0.3),
    "fused_loss": Effect(
        deviation=0.12, log_memory=-0.2, memory_deviation=0.2, overhead_seconds=2.0
    ),
}
"""Trait -> expected effect. If a technique has several of the traits, the first one counts."""

BY_AXIS: Mapping[str, Effect] = {
    "activations": Effect(deviation=0.2, memory_deviation=0.3),
    "adapter": Effect(deviation=0.3, memory_deviation=0.4),
    # The addresses of memory hardly affect the time.
    "allocator": Effect(deviation=0.03, memory_deviation=0.05),
    # Attention is a small part of the time, and the default is one of the fast kernels already:
    # 12·layers·width·tokens of about 6·weights floating-point operations, 5 % for 1.2 B weights
    # and 1,024 tokens.
    "attention": Effect(deviation=0.06, memory_deviation=0.1),
    "base": Effect(deviation=0.2, memory_deviation=0.3),
    "batching": Effect(deviation=0.12, memory_deviation=0.1),
    "compile": Effect(deviation=0.25, memory_deviation=0.3),
    # Data loader and loop run on the host. They matter only if the GPU waits for the host.
    "dataloader": Effect(deviation=0.04, memory_deviation=0.01),
    "experts": Effect(deviation=0.3, memory_deviation=0.2),
    "kernels": Effect(log_time=-0.05, deviation=0.15, log_memory=-0.1, memory_deviation=0.15),
    "loop": Effect(deviation=0.05, memory_deviation=0.01),
    "loss": Effect(deviation=0.12, memory_deviation=0.2),
    "offload": Effect(log_time=0.5, deviation=0.5, memory_deviation=0.3),
    "optimizer": Effect(deviation=0.15, memory_deviation=0.15),
    "precision": Effect(deviation=0.3, memory_deviation=0.2),
}
# Dense matrix products of an H200 in TFLOP/s, by its datasheet: fp32 67, tf32 495, 16 bits 989.
# Matrix products are only a part of the time, so half of this logarithm is assumed.
_TF32 = Effect(log_time=-1.0, deviation=0.4, memory_deviation=0.1)
_HALF = Effect(log_time=-1.35, deviation=0.4, log_memory=-0.3, memory_deviation=0.2)
# One grouped product replaces a loop over the experts, which the host launches one by one.
_GROUPED = Effect(log_time=-0.4, deviation=0.4, memory_deviation=0.15)
# Liger Kernel (Hsu et al., 2024) reports 20 % more throughput and 60 % less memory on average, its
# loss included. The loss has an axis of its own here.
_LIGER = Effect(log_time=-0.15, deviation=0.12, log_memory=-0.2, memory_deviation=0.2)
# Blocks have no padding and are as long as the longest row. Of the recorded decoder of 1.2 B they
# trained 2.2 to 2.9 times as many tokens in a second.
_PACKED = Effect(log_time=-0.7, deviation=0.4, memory_deviation=0.1)
BY_VALUE: Mapping[str, Mapping[str, Effect]] = {
    "batching": {"packed_whole_rows": _PACKED},
    "precision": {"tf32": _TF32, "bf16": _HALF, "fp16": _HALF, "bf16_weights": _HALF},
    "experts": {"grouped_mm": _GROUPED},
    "kernels": {"liger": _LIGER},
}
"""Axis -> value -> expected effect. It has precedence over traits and axis."""
INTERACTIONS: Mapping[tuple[str, str], Effect] = {
    # The grouped product of experts has other kernels for each dtype.
    ("experts", "precision"): Effect(deviation=0.4),
    # Both fuse the same operations, so together they gain less than the sum of both. On the
    # recorded decoder of 1.2 B, it was 0.2 less.
    ("compile", "kernels"): Effect(log_time=0.15, deviation=0.1),
}
"""Two axes -> effect on the time of a pair of their values; other pairs have
``PriorScales.pair``."""
BUILD_SECONDS = 50.0
"""Seconds that DeepSpeed needs to compile an op on its first use, and to start its engine. The
compilation of its CPU Adam was measured: 39 to 42 s."""
_LEAST_DEVIATION = 0.03


def expectation(axis: str, value: Choice) -> Effect:
    """The expected effect of a value without a recorded table."""
    by_value = BY_VALUE.get(axis, {}).get(str(value))
    if by_value is not None:
        return by_value
    traits = traits_of(axis, value)
    for trait, expected in BY_TRAIT.items():
        if trait in traits:
            return _of_share(expected, str(value))
    return BY_AXIS.get(axis, Effect())


def is_more_work(axis: str, value: Choice) -> bool:
    """Whether a technique computes activations twice, which takes more time on every machine."""
    traits = traits_of(axis, value)
    return "activation_budget" in traits or "checkpointing" in traits


def traits_of(axis: str, value: Choice) -> Collection[str]:
    """The traits of a value; none if its axis does not have the value, such as "custom"."""
    try:
        return AXES[axis].variant(value).traits
    except KeyError:
        return ()


def compiles(axis: str, value: Choice) -> bool:
    return not _COMPILERS.isdisjoint(traits_of(axis, value))


def _of_share(expected: Effect, value: str) -> Effect:
    """The effect of a value such as ``budget_0.5``: in proportion to the share that is not kept."""
    _, number = parsed(value)
    if not is_share(number):
        return expected
    rest = 1 - number
    return replace(
        expected,
        log_time=expected.log_time * rest,
        deviation=max(_LEAST_DEVIATION, expected.deviation * rest),
        log_memory=expected.log_memory * rest,
    )
