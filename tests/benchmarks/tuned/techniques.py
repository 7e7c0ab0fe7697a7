"""SIMULATED: what techniques do to a decoder where no row was recorded. One place says it, as data.

The factors of time and memory are assumptions of plausible size, taken from recorded rows of other
models where there are some (`docs/results`). A replay draws each of them anew for every seed, so
that no search can be fitted to them.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.record import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedEffect:
    """What a value of an axis does, compared with the default of its axis."""

    time: float = 1.0
    """Factor of the GPU's seconds of a sample."""
    saved: float = 1.0
    """Factor of the bytes that each sample takes."""
    fixed_gib: float = 0.0
    """Memory besides that of samples, more than without it."""
    step_seconds: float = 0.0
    """Seconds of each step, besides those of samples."""
    host: float = 1.0
    """Factor of the host's seconds of a step."""
    loading: float = 1.0
    """Factor of the seconds in which the host loads a sample."""
    first_seconds: float = 0.0
    """Seconds of each trial before its steps: compiling, tuning, preparing."""
    build_seconds: float = 0.0
    """Seconds of the first trial alone, for what is built once on a machine."""
    outcome: Outcome = Outcome.OK
    failing_seconds: float = 0.6
    """How long a trial takes that does not end ok."""
    recipe: bool = False
    """Whether it changes what the model learns."""


REFUSED = SimulatedEffect(outcome=Outcome.UNSUPPORTED)


EFFECTS: Mapping[str, Mapping[str, SimulatedEffect]] = {
    "activations": {
        "checkpoint_selective": SimulatedEffect(time=1.35, saved=0.75),
        # The simulated machine has no TRL.
        "offload": REFUSED,
        "checkpoint_offload_streams": REFUSED,
    },
    "attention": {
        "unmasked": SimulatedEffect(time=0.99),
        "sdpa_cudnn": SimulatedEffect(time=0.98, first_seconds=0.5),
        "varlen": SimulatedEffect(time=0.98),
        "flex_attention": SimulatedEffect(time=1.10, first_seconds=5.0),
    },
    "batching": {"padding_free": SimulatedEffect(time=1.01)},
    "precision": {
        "fp16": SimulatedEffect(time=1.03),
        "tf32": SimulatedEffect(time=2.3, saved=1.6),
        "fp32": SimulatedEffect(time=6.5, saved=1.6),
    },
    "optimizer": {"adamw_torch": SimulatedEffect(step_seconds=0.012)},
    "experts": {
        "eager": REFUSED,
        "batched_mm": REFUSED,
        "grouped_mm": REFUSED,
    },
    "offload": {
        # One step of an AdamW on 16 host cores over 1.2 B parameters, and its build.
        "zero2_cpu_optimizer": SimulatedEffect(
            fixed_gib=-11.0, step_seconds=1.1, first_seconds=6.0, build_seconds=40.0
        ),
        "zero3_cpu_both": SimulatedEffect(
            time=1.2, fixed_gib=-14.0, step_seconds=1.5, first_seconds=8.0, build_seconds=40.0
        ),
    },
    "kernels": {"liger": SimulatedEffect(time=0.94, saved=0.86, first_seconds=2.0)},
    "loss": {
        # The fused losses break the graph of a compiled model, which `decoder` says.
        "liger": SimulatedEffect(time=1.05, first_seconds=1.5),
        "cce": SimulatedEffect(time=1.02, first_seconds=6.0),
    },
    "compile": {
        # Against the recorded regional compilation.
        "inductor": SimulatedEffect(time=0.99, first_seconds=36.0),
        "inductor_reduce_overhead": SimulatedEffect(time=0.99, saved=1.3, first_seconds=38.0),
        "inductor_tuned": SimulatedEffect(time=0.97, first_seconds=95.0),
        "inductor_regional_tuned": SimulatedEffect(time=0.99, first_seconds=3.0),
    },
    "allocator": {
        "expandable_segments": SimulatedEffect(saved=0.97),
        "max_split_128": SimulatedEffect(),
        "roundup_power2": SimulatedEffect(saved=1.1),
    },
    "dataloader": {"workers_2": SimulatedEffect(first_seconds=0.4)},
    "loop": {"trainer_async": SimulatedEffect(time=0.99)},
}
"""Axis -> value -> its effect. A value without an entry has recorded rows, or is a default."""

FUSED_LOSSES = frozenset({"liger", "cce"})
"""Losses that break a compiled graph: compiling then gains this much less."""
FUSED_LOSS_COMPILED = 1.2
FUSED_KERNELS_COMPILED = 1.08
"""Foreign kernels break the graph, too, and save what compiling would have saved."""
CHECKPOINT_COMPILED_SECONDS = 1.0
DRAWN_DEVIATION = 0.04
"""Each factor of time above is drawn around its value with this deviation, as a logarithm."""
PAIR_DEVIATION = 0.01
"""And what two changed techniques do together beyond their product."""


def drawn_factor(seed: int, deviation: float, *names: str) -> float:
    """A factor near 1 that belongs to these names; ``deviation`` is that of its logarithm."""
    return math.exp(random.Random(f"{seed} {' '.join(names)}").gauss(0.0, deviation))
