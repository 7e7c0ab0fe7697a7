"""What measuring more could still gain: by candidate, and for a whole budget with its probability.

All speeds are logarithms, so a gain of 0.01 is about 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.search.answer.cost_model import CostModel
from orchestrator.search.frontier.arrays import Array, Indices, Mask, rounded

_SAMPLES = 512
"""Joint samples of speeds, memories and working techniques, for the probability of a gain."""
_SHORTLIST = 256
"""Candidates that are sampled: those with the largest expected gain."""
_SHARED_MEMORY_ERROR = 0.5
"""Share of the variance of memory errors that all candidates share."""
_LEAST_VARIANCE = 1e-12
_NO_INCUMBENT_DEFICIT = 1.0
"""While nothing fits a budget, candidates are compared with one this much slower than usual."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Beliefs:
    """What is believed of every candidate; arrays of shape (candidates,)."""

    log_speed: Array
    log_memory: Array
    memory_deviation: Array
    """Standard deviations of ``log_memory``."""
    works: Array
    """Probability that it runs at all."""
    choices: Indices
    """Numbers of each candidate's choices, shape (candidates, axes)."""
    unproven: Mask
    """Whether a choice has not run yet, shape (choices,)."""
    works_untried: Array
    """Probability that a choice that has not run yet does, shape (choices,)."""
    times: CostModel
    """For the covariances of the speeds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemainingGain:
    """What anything unmeasured could still gain in one budget over the fastest measured."""

    expected: float
    """Mean of the largest gain, as a share of the speed."""
    at_most: float
    """The largest gain is at most this share, with the wanted probability; infinite while nothing
    that fits was measured."""
    probability_any_fits: float
    """That an unmeasured candidate fits the budget and runs."""
    values: Array
    """What a measurement of each candidate is worth, shape (candidates,): its expected gain, and
    what it tells about others. 0 for those that were not sampled."""


def probability_to_fit(beliefs: Beliefs, budget_bytes: float) -> Array:
    """That each candidate needs no more than the budget, shape (candidates,)."""
    if math.isinf(budget_bytes):
        return np.ones(len(beliefs.log_memory))
    room = math.log(budget_bytes) - beliefs.log_memory
    deviation = np.maximum(beliefs.memory_deviation, 1e-9)
    return _normal_cdf(room / deviation)


def expected_gains(
    beliefs: Beliefs, incumbent: int | None, budget_bytes: float, is_open: Mask
) -> Array:
    """Expected improvement over the incumbent, shape (candidates,); 0 where a candidate is closed.

    The closed form for a normal distribution (Jones, Schonlau and Welch, 1998), of the ratio to
    the incumbent: an error that both share cancels out.
    """
    if not is_open.any():
        return np.zeros(len(is_open))
    if incumbent is None:
        mean = beliefs.log_speed - beliefs.log_speed[is_open].min() + _NO_INCUMBENT_DEFICIT
        deviation = np.sqrt(beliefs.times.variance)
    else:
        mean = beliefs.log_speed - beliefs.log_speed[incumbent]
        deviation = np.sqrt(_ratio_variance(beliefs.times, incumbent))
    deviation = np.maximum(deviation, 1e-9)
    score = mean / deviation
    density = np.exp(-(score**2) / 2) / math.sqrt(2 * math.pi)
    improvement = deviation * (score * _normal_cdf(score) + density)
    fits = probability_to_fit(beliefs, budget_bytes)
    return np.asarray(rounded(is_open * improvement * fits * beliefs.works))


def _ratio_variance(times: CostModel, incumbent: int) -> Array:
    """Var(a - b) = Var(a) + Var(b) - 2 Cov(a, b), of logarithms, shape (candidates,)."""
    every = np.arange(len(times.variance))
    shared = times.covariance(every, np.array([incumbent]))[:, 0]
    variance = times.variance + times.variance[incumbent] - 2 * shared
    # It can fall below zero by rounding.
    return np.asarray(np.maximum(variance, 0.0))


def remaining_gain(
    beliefs: Beliefs,
    incumbent: int | None,
    budget_bytes: float,
    gains: Array,
    *,
    probability: float,
    seed: int,
) -> RemainingGain:
    """The distribution of the largest gain, from joint samples of the likeliest candidates.

    ``gains`` are the expected gains of the open candidates.
    """
    shortlist = np.argsort(-gains, kind="stable")[:_SHORTLIST]
    shortlist = shortlist[gains[shortlist] > 0]
    values = np.zeros(len(gains))
    if not len(shortlist):
        at_most = math.inf if incumbent is None else 0.0
        return RemainingGain(expected=0.0, at_most=at_most, probability_any_fits=0.0, values=values)
    generator = np.random.default_rng(seed)
    is_feasible = _feasible(beliefs, shortlist, budget_bytes, generator)
    any_fits = float(is_feasible.any(axis=1).mean())
    mean, covariance = _ratios(beliefs, shortlist, incumbent)
    ratios = np.where(is_feasible, _sampled(mean, covariance, generator), 0.0)
    values[shortlist] = rounded(_values(np.maximum(ratios, 0.0), gains[shortlist], covariance))
    if incumbent is None:
        return RemainingGain(
            expected=math.inf, at_most=math.inf, probability_any_fits=any_fits, values=values
        )
    # A logarithm of a ratio becomes a share of the incumbent's speed.
    shares = np.expm1(ratios.max(axis=1, initial=0.0))
    return RemainingGain(
        expected=float(rounded(shares.mean())),
        at_most=float(rounded(np.quantile(shares, probability))),
        probability_any_fits=any_fits,
        values=values,
    )


def _values(sampled: Array, expected: Array, covariance: Array) -> Array:
    """What to measure each row is worth, shape (rows,): its expected gain, and what it tells.

    ``sampled`` are gains of shape (samples, rows), ``expected`` their means. In each sample, the
    best row gains more than is expected of any row. To measure a row explains a share of what is
    uncertain about that best one: their squared correlation.
    """
    best = sampled.argmax(axis=1)
    excess = np.maximum(sampled.max(axis=1) - expected.max(), 0.0)
    of_best = np.bincount(best, weights=excess, minlength=len(expected)) / len(sampled)
    deviations = np.sqrt(np.maximum(np.diag(covariance), _LEAST_VARIANCE))
    explained = np.minimum((covariance / np.outer(deviations, deviations)) ** 2, 1.0)
    np.fill_diagonal(explained, 1.0)
    return np.asarray(expected + explained @ of_best)


def _feasible(
    beliefs: Beliefs, rows: Indices, budget_bytes: float, generator: np.random.Generator
) -> Mask:
    """Whether candidates fit and run, in each sample, shape (samples, rows)."""
    is_working = generator.random((_SAMPLES, len(beliefs.unproven))) < beliefs.works_untried
    is_working |= ~beliefs.unproven
    runs = is_working[:, beliefs.choices[rows]].all(axis=2)
    if math.isinf(budget_bytes):
        return np.asarray(runs)
    shared = generator.standard_normal((_SAMPLES, 1)) * math.sqrt(_SHARED_MEMORY_ERROR)
    own = generator.standard_normal((_SAMPLES, len(rows))) * math.sqrt(1 - _SHARED_MEMORY_ERROR)
    log_memory = beliefs.log_memory[rows] + beliefs.memory_deviation[rows] * (shared + own)
    return np.asarray(runs & (log_memory <= math.log(budget_bytes)))


def _ratios(beliefs: Beliefs, rows: Indices, incumbent: int | None) -> tuple[Array, Array]:
    """Mean and covariance of the logarithms of speeds relative to the incumbent's.

    Without an incumbent, relative to one slower than all rows.
    """
    if incumbent is None:
        slowest = beliefs.log_speed[rows].min() - _NO_INCUMBENT_DEFICIT
        return beliefs.log_speed[rows] - slowest, beliefs.times.covariance(rows, rows)
    together = np.append(rows, incumbent)
    covariance = beliefs.times.covariance(together, together)
    # Var and covariance of the differences from the incumbent, which is last.
    of_ratios = (
        covariance[:-1, :-1] - covariance[:-1, -1:] - covariance[-1:, :-1] + covariance[-1, -1]
    )
    return beliefs.log_speed[rows] - beliefs.log_speed[incumbent], of_ratios


def _sampled(mean: Array, covariance: Array, generator: np.random.Generator) -> Array:
    """Joint samples of a normal distribution, shape (samples, rows)."""
    # Rounding can make it slightly indefinite, so negative eigenvalues count as zero.
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    normal = generator.standard_normal((_SAMPLES, len(mean)))
    return np.asarray(mean + normal @ root.T)


def _normal_cdf(scores: Array) -> Array:
    """The standard normal distribution function."""
    return np.asarray([0.5 * math.erfc(-score / math.sqrt(2)) for score in scores.tolist()])


def fastest_of(beliefs: Beliefs, candidates: Sequence[int], budget_bytes: float) -> int | None:
    """The candidate with the highest expected speed of those that fit; None if none does."""
    fitting = []
    for index in candidates:
        if math.isinf(budget_bytes) or beliefs.log_memory[index] <= math.log(budget_bytes):
            fitting.append(index)
    return max(fitting, key=beliefs.log_speed.__getitem__, default=None)
