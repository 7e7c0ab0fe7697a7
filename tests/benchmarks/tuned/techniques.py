"""SIMULATED: what techniques do to a decoder where no row was recorded, as data of a file.

A replay draws each factor anew for every seed, so that no search can be fitted to them.
"""

import math
import random
from dataclasses import dataclass

import yaml
from pydantic import TypeAdapter

from jobs.record import Outcome
from tests.support.commands import ROOT


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


SIMULATED = yaml.safe_load((ROOT / "tests/data/simulated_models.yaml").read_text())
EFFECTS = TypeAdapter(dict[str, dict[str, SimulatedEffect]]).validate_python(SIMULATED["effects"])
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
