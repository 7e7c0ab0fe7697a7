"""The numbers of the cost model that are chosen before any measurement."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Hyperparameters:
    """How costs are expected to behave, as logarithms unless stated otherwise (0.02 is about 2 %).

    Two ways of fitting. "By likelihood": the model chooses from the listed values, after every
    measurement, those under which all measurements are most probable. "By replay": set once by
    hand, so that replays of the recorded grids (``python -m tests.benchmarks.replay``) find the
    whole front for the least slot time; then left alone. None of them is delicate: halving or
    doubling any one changes the cost of those replays by at most 4 % and their recall by about one
    point (``python -m tests.benchmarks.replay --sensitivity`` at commit b38e9328).
    """

    common_deviation: float = 3.0
    """Prior deviation of a curve's parameter that all curves share. Wide: only the order of
    magnitude is known."""
    axis_deviation: float = 1.0
    """Prior deviation that depends on the value of an axis, and is shared by curves with equal
    values. By replay."""
    curve_deviation: float = 0.2
    """Prior deviation of one curve by itself. By replay."""
    base_slope_correlation: float = 0.8
    """How much of their deviations the base and the slope of a time share (0 to 1): one GPU spends
    both. By replay."""

    similar_value_share: float = 0.98
    """How much two curves share on an axis with similar values, where 1 is equal values. By
    replay."""
    correlation_per_choice: float = 0.95
    """Correlation of the misfits of two candidates for each choice in which they differ. By
    replay."""

    misfit_deviations: tuple[float, ...] = (0.002, 0.004, 0.008, 0.016, 0.03)
    """How far costs are from the law. Similar candidates have similar misfits. By likelihood."""
    usual_misfit: float | None = None
    """The expected misfit: others become improbable with the distance of their logarithm. None: all
    listed ones are equally probable before a measurement."""
    extra_deviations: tuple[float, ...] = (0.0, 0.1, 0.3)
    """How far an optimizer's extra is from a constant, relative to itself. By likelihood.

    A kernel that is launched while the GPU is still busy costs less than one after it ran dry."""
    noises: tuple[float, ...] = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1)
    """Noise of a single measurement. By likelihood."""
    floor_noises: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
    """Noise of a measurement on the floor of a time: the pace of a host varies more. By
    likelihood."""
    outlier_threshold: float = 3.0
    """A time further from the law than this many times the common noise gets more noise of its own.
    By replay."""

    floor_below: float = 0.0
    """Expected distance of a floor below the smallest measured cost."""
    base_below: float = 1.0
    slope_below: float = 1.0
    """Expected distances of base and slope below the measured costs: by default both are 1/e of
    them, so that their sum is near the cost."""
    first_error: float = 0.01
    """Misfit and noise of a first fit, whose residuals then select the scales."""

    max_norm_exponent: float = 100.0
    """Exponent of the norm that replaces the maximum in the law, to have derivatives: within 0.7 %
    of it."""
    branch_slack: float = 0.05
    """How far a branch of the law may exceed the branch that was seen. An excess of this size costs
    as much as one standard deviation. By replay."""
    floor_corner: float = 0.1
    """How far the floor may exceed a line that was seen, at no cost: real curves bend near the
    corner between floor and line. By replay."""
    other_branch_weight: float = 1e-6
    """Weight of rows on the other branch when the noise of one branch is estimated. It is above
    zero, so that the weights never sum to zero."""
    min_extra_factor: float = 0.02
    """An extra below zero leaves at least this factor of a cost (not a logarithm). Keeps the
    logarithm defined."""

    max_fit_steps: int = 20
    """Gauss-Newton steps at most."""
    max_parameter_change: float = 1.0
    """Largest change of a parameter in one step."""
    max_step_halvings: int = 5
    """How often a step is halved in search of a smaller loss, before the fit ends."""
    min_gain: float = 1e-3
    """The fit ends when a step lowers the loss (squared deviations) by less than this."""
