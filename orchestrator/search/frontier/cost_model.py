"""One cost over all configurations of a plan: a physical law with its unknowns, learned from what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.frontier.configurations import Configuration, Key
from orchestrator.search.frontier.similarity import Array, Numbers, likeness, shared

Indices = NDArray[np.int64]

SHARPNESS = 100
"""How sharply a curve turns from its floor to its slope: the exponent of a norm that stands in for the maximum."""
FLOOR, EITHER, RISING = 1, 0, -1
"""What a measured cost tells of: the floor, and that what rises is no more; the larger of the two; or what rises, and
that the floor is no more."""
SLACK, CORNER = 0.05, 0.1
"""How far, as a logarithm, the smaller of them may be above the larger at the price of a deviation; a floor a corner
more, for close to it a curve turns less sharply."""
UNKNOWN, AXIS, ALONE = 3.0, 1.0, 0.2
"""What the logarithm of a parameter may vary by: all curves together, with the values of the axes, and alone."""
PACE = 0.8
"""How much of that base and slope of a time share: it is one GPU that spends both."""
DEVIATIONS = (0.002, 0.004, 0.008, 0.016, 0.03)
UNEVEN = (0.0, 0.1, 0.3)
"""How far an optimizer's extra is off, relative to itself: launched while the GPU is busy it costs less than after."""
NOISES = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1)
NOISES_OF_FLOORS = (0.01, 0.03, 0.1, 0.3)
"""What the data choose from, with the two above: how far the law is off, alike for near micro-batches, and how far a
row is, by itself; one that tells of a floor is its host's, which changes its pace as it likes."""
OUTLIER = 3.0
"""A time that is off the law by more than so many times the noise of all has so much more of its own; of memory, which
repeats to the byte, it is the law that is off."""
OTHER_SIDE = 1e-6
"""The weight, among what rows are off by, of one on the other side of the law."""
LEAST = 0.02
"""An extra that would leave less than this of a cost is cut there; only far from a fit is one so large."""
_FAR = 1e300
"""Beyond any sum of squares."""
STEPS, LONGEST, ENOUGH = 20, 1.0, 1e-3
"""Gauss-Newton: steps at most, the largest change of a parameter in one, and the gain that is too small to go on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The logarithm of every configuration's cost, shape (configurations,)."""

    mean: Array
    deviation: Array
    """Standard deviation of what a trial would measure: the doubt about the cost and the noise of a row."""


class Surface:
    """cost = max(floor, base + slope × micro-batch) + extra, in bytes or seconds a micro-batch.

    Floor, base and slope belong to a curve (everything but the optimizer and the micro-batch), and are the more alike
    the more choices two curves share; the extra belongs to an optimizer, and of a time each micro-batch of a step has
    its share. What the law leaves unexplained is a Gaussian process, alike for near micro-batches and like techniques,
    and another for the extras alone.
    """

    def __init__(self, planned: Sequence[Configuration], *, per_step: bool) -> None:
        self._size = np.array([one.micro_batch for one in planned], float)
        self._share = np.array([1 / one.accumulation if per_step else 1.0 for one in planned])
        curves: Numbers[Key] = Numbers()
        extras: Numbers[Key] = Numbers()
        self._curve = np.array([curves[one.donor] for one in planned], int)
        self._extra = np.array(
            [-1 if one.donor == one.curve else extras[one.family] for one in planned], int
        )
        self._curves, self._extras = len(curves), len(extras)
        self._is_time = per_step
        self._alike = likeness(planned)
        self._prior = np.eye(3 * self._curves + self._extras)
        choices = shared(curves)
        alike = UNKNOWN**2 + AXIS**2 * choices.mean(axis=2) + ALONE**2 * choices.min(axis=2)
        for block in range(3):
            part = slice(block * self._curves, (block + 1) * self._curves)
            self._prior[part, part] = alike
        if per_step:
            base, slope = (
                slice(block * self._curves, (block + 1) * self._curves) for block in (1, 2)
            )
            self._prior[base, slope] = self._prior[slope, base] = PACE * (alike - UNKNOWN**2)
        self._precision = np.linalg.inv(self._prior)
        self._costs: dict[int, tuple[float, float]] = {}
        self._side = np.full(len(planned), EITHER)
        self._at: Array | None = None
        self.estimate: Estimate | None = None
        """From everything measured so far; None where nothing was."""
        self.doubt = self._prior[:0, :0]
        """Covariance of the doubts about the logarithms themselves, shape (configurations, configurations)."""

    def put(self, index: int, cost: float, error: float = 0.0, side: int = EITHER) -> None:
        """A measured cost of a configuration with its own relative error, in place of an earlier one."""
        self._costs[index] = (cost, error)
        self._side[index] = side
        seen = np.array(list(self._costs), int)
        costs, errors = np.array(list(self._costs.values())).T
        self._unit = float(costs.min())
        centre = self._centre(costs / self._size[seen])
        at = centre if self._at is None else self._at
        measured, own = np.log(costs), (errors / 2) ** 2
        unexplained, noise = self._scales(at, centre, seen, measured, own)
        own += noise**2
        self._at = self._fit(
            at, centre, seen, measured, unexplained[np.ix_(seen, seen)] + np.diag(own)
        )
        self.estimate = self._estimate(self._at, seen, measured, unexplained, own)

    def _estimate(
        self, at: Array, seen: Indices, measured: Array, unexplained: Array, own: Array
    ) -> Estimate:
        """Where a side that a row does not tell of was held back, that is no knowledge: only the mean heeds it."""
        value, slope = self._law(at)
        known = slope @ self._prior @ slope.T + unexplained
        gain = np.linalg.solve(known[np.ix_(seen, seen)] + np.diag(own), known[seen])
        around = unexplained[np.ix_(seen, seen)] + np.diag(own)
        mean = value + unexplained[:, seen] @ np.linalg.solve(around, measured - value[seen])
        self.doubt = known - known[seen].T @ gain
        floor, base, slopes = self._parts(at)
        is_floor = np.where(
            self._side == EITHER, floor > np.logaddexp(base, slopes), self._side == FLOOR
        )
        other = (self._side[seen] != EITHER) & (is_floor[:, None] != (self._side[seen] == FLOOR))
        near = self._alike[:, seen] * np.where(other, OTHER_SIDE, 1.0)
        variance = np.maximum(np.diag(self.doubt), 0.0) + near @ own / near.sum(axis=1)
        # Rounded, so that another machine's arithmetic leads to the same trials.
        return Estimate(mean=mean.round(6), deviation=np.sqrt(variance).round(6))

    def _centre(self, cost_a_sample: Array) -> Array:
        """What the parameters are before anything tells them: the order of magnitude of what was measured."""
        a_sample = float(np.log(np.median(cost_a_sample)))
        unit = float(np.log(self._unit))
        return np.repeat([unit, unit - 1, a_sample - 1, 0.0], [*[self._curves] * 3, self._extras])

    def _parts(self, at: Array) -> tuple[Array, Array, Array]:
        """The logarithms of every floor, base and slope × micro-batch."""
        floor, base, slope = (
            at[block * self._curves : (block + 1) * self._curves][self._curve] for block in range(3)
        )
        return floor, base, slope + np.log(self._size)

    def _of_curve(self, at: Array) -> Array:
        """The logarithm of every cost without its extra."""
        floor, base, slope = self._parts(at)
        larger = np.logaddexp(SHARPNESS * floor, SHARPNESS * np.logaddexp(base, slope)) / SHARPNESS
        return np.where(self._side == FLOOR, floor, larger)

    def _law(self, at: Array) -> tuple[Array, Array]:
        """The logarithm of every cost, and its derivatives by every parameter."""
        many = self._curves
        _, base, slope = self._parts(at)
        rising, curve = np.logaddexp(base, slope), self._of_curve(at)
        on_slope = np.where(self._side == FLOOR, 0.0, np.exp(SHARPNESS * (rising - curve)))
        has = self._extra >= 0
        step = self._unit * self._share * np.exp(-curve)
        extra = np.where(has, step * np.append(at[3 * many :], 0.0)[self._extra], 0.0)
        whole = np.maximum(1 + extra, LEAST)
        derivative = np.zeros((len(curve), len(at)))
        rows = np.arange(len(curve))
        derivative[rows, self._curve] = (1 - on_slope) / whole
        derivative[rows, many + self._curve] = on_slope * np.exp(base - rising) / whole
        derivative[rows, 2 * many + self._curve] = on_slope * np.exp(slope - rising) / whole
        derivative[rows[has], 3 * many + self._extra[has]] = (step / whole)[has]
        return curve + np.log(whole), derivative

    def _beyond(self, at: Array) -> tuple[Array, Array]:
        """By how much, in deviations, the side that a row does not tell of is above the one that it does, where it is;
        and the derivatives by every parameter."""
        floor, base, slope = self._parts(at)
        rising = np.logaddexp(base, slope)
        over = self._side * (rising - floor) - CORNER * (self._side == RISING)
        seen = np.flatnonzero((self._side != EITHER) & (over > 0))
        side = self._side[seen] / SLACK
        derivative = np.zeros((len(seen), len(at)))
        rows, curve = np.arange(len(seen)), self._curve[seen]
        derivative[rows, curve] = -side
        derivative[rows, self._curves + curve] = side * np.exp(base - rising)[seen]
        derivative[rows, 2 * self._curves + curve] = side * np.exp(slope - rising)[seen]
        return over[seen] / SLACK, derivative

    def _scales(
        self, at: Array, centre: Array, seen: Indices, measured: Array, own: Array
    ) -> tuple[Array, Array]:
        """What the law leaves unexplained, as covariances of all costs, and every row's noise, under which what was
        measured is likeliest."""
        value, slope = self._law(at)
        residual = measured - value[seen] + slope[seen] @ (at - centre)
        known, places = slope[seen] @ self._prior @ slope[seen].T, np.ix_(seen, seen)
        # Of a cost, the extra's share; that of another optimizer's tells nothing.
        share = 1 - np.exp(self._of_curve(at) - value)
        of_extras = np.outer(share, share) * self._alike * np.equal.outer(self._extra, self._extra)
        alike, uneven = self._alike[places], of_extras[places]
        is_floor = self._side[seen] == FLOOR

        off = np.abs(measured - value[seen]) * self._is_time
        least = off.clip(max=NOISES_OF_FLOORS[-1]) / OUTLIER
        floors = NOISES_OF_FLOORS if is_floor.any() else NOISES_OF_FLOORS[:1]
        pairs = itertools.product(NOISES, floors)
        noises = np.array(
            [np.where(is_floor, of_floors, np.maximum(noise, least)) for noise, of_floors in pairs]
        )
        scales = list(itertools.product(DEVIATIONS, UNEVEN))
        likelihoods = np.array(
            [
                _likelihoods(
                    known + one**2 * alike + of_extra**2 * uneven, own + noises**2, residual
                )
                for one, of_extra in scales
            ]
        )
        place, row = np.unravel_index(np.argmax(likelihoods), likelihoods.shape)
        (deviation, of_extra), noise = scales[place], noises[row]
        return deviation**2 * self._alike + of_extra**2 * of_extras, noise

    def _fit(
        self, at: Array, centre: Array, seen: Indices, measured: Array, around: Array
    ) -> Array:
        """The likeliest parameters: Gauss-Newton, a step halved until it helps."""
        weight = np.linalg.inv(around)

        def loss(place: Array) -> float:
            value, _ = self._law(place)
            residual, moved, (beyond, _) = (
                measured - value[seen],
                place - centre,
                self._beyond(place),
            )
            return float(
                residual @ weight @ residual + moved @ self._precision @ moved + beyond @ beyond
            )

        best = loss(at)
        for _ in range(STEPS):
            value, slope = self._law(at)
            slope = slope[seen]
            beyond, tilt = self._beyond(at)
            pull = (
                slope.T @ weight @ (measured - value[seen])
                - self._precision @ (at - centre)
                - tilt.T @ beyond
            )
            step = np.linalg.solve(slope.T @ weight @ slope + self._precision + tilt.T @ tilt, pull)
            step *= LONGEST / max(LONGEST, np.abs(step).max())
            for _ in range(6):
                if (found := loss(at + step)) < best:
                    break
                step /= 2
            else:
                break
            at, gained, best = at + step, best - found, found
            if gained < ENOUGH:
                break
        return at


def _likelihoods(covariance: Array, variances: Array, residual: Array) -> Array:
    """The logarithms of the residuals' likelihoods under each row of variances beside the covariance, shape (rows,).

    The residuals border the covariances: their last row of the factor is then what solving it for them would give.
    """
    count = len(residual)
    bordered = np.zeros((len(variances), count + 1, count + 1))
    bordered[:, :count, :count] = covariance
    bordered[:, range(count), range(count)] += variances
    bordered[:, count, :count] = residual  # of the two triangles the lower is read
    bordered[:, count, count] = _FAR
    factor = np.linalg.cholesky(bordered)
    logarithms = np.log(np.diagonal(factor, axis1=1, axis2=2)[:, :count])
    return np.asarray(-0.5 * (factor[:, count, :count] ** 2).sum(axis=1) - logarithms.sum(axis=1))
