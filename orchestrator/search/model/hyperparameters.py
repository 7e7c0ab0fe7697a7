"""The numbers of the cost model that are chosen before any measurement."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Hyperparameters:
    """How costs are expected to behave, as logarithms unless stated otherwise (0.02 is about 2 %).
    Of listed values the model chooses the most probable ones after every measurement."""

    discrepancy_deviations: tuple[float, ...]
    """How far costs are from the model. Similar candidates have similar discrepancies."""
    usual_discrepancy: float
    """The expected discrepancy: others become improbable with the distance of their logarithm."""
    noises: tuple[float, ...]
    """Noise of a single measurement."""
    floor_noises: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
    """Noise of a measurement on the floor of a time: the pace of a host varies more."""
    excess_threshold: float
    """How many times the common noise a measurement may be from the model without more noise of its
    own."""

    floor_below: float
    """Expected distance of a floor below the smallest measured cost."""
    base_below: float = 1.0
    slope_below: float = 1.0
    """Expected distances of base and slope below the measured costs: by default both are 1/e of
    them, so that their sum is near the cost."""
    usual_noise: float = 0.01
    """Noise, and discrepancy of a first fit, before the residuals of this fit select the scales."""

    max_norm_exponent: float = 100.0
    """Exponent of the norm, within 0.7 % of the maximum, that replaces it to have derivatives."""


OF_TIME = Hyperparameters(
    # Few measurements often fit by chance, so discrepancies are never taken to be tiny. A training
    # that the model does not describe, such as one that waits for its data, has large ones.
    discrepancy_deviations=(0.03, 0.06, 0.12, 0.25),
    usual_discrepancy=0.03,
    noises=(0.01, 0.02, 0.03, 0.06, 0.1),
    excess_threshold=3.0,
    # Host-bound micro-batches are usually smaller than those that are tried first. About a quarter
    # of a time is the base, and the rest is the slope.
    floor_below=0.9,
    base_below=1.5,
    slope_below=0.3,
)
OF_MEMORY = Hyperparameters(
    # Memory repeats almost to the byte, and is nearly affine in the micro-batch. So large residuals
    # are errors of the performance model, not of the measurement.
    discrepancy_deviations=(0.01, 0.02, 0.04, 0.08, 0.16),
    usual_discrepancy=0.02,
    noises=(0.001, 0.003, 0.01),
    excess_threshold=math.inf,
    floor_below=0.3,
)
