"""The gain that further measurements could still bring: of each candidate, and of a whole budget.

All speeds are logarithms, so a gain of 0.01 is about 1 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.repeatability import NEARLY
from orchestrator.search.model.arrays import Array, Indices, Mask, rounded
from orchestrator.search.model.posterior import CostModel

_SAMPLES = 512
"""Joint samples. The standard error of a sampled probability is at most 0.5 / sqrt(512), 2 %."""
_SHORTLIST = 256
"""Most candidates to sample: the time of sampling grows with the cube of their number."""
_MEASUREMENT_NOISE = 0.02
"""Expected noise of a measured speed, as a logarithm: what is known nearly as well shows little."""
_SHARED_MEMORY_ERROR = 0.5
"""Part of the variance of memory errors that is common to all candidates."""
_NO_INCUMBENT_DEFICIT = 1.0
"""While nothing measured fits a budget, gains are relative to a speed below the usual one by this
much, as a logarithm. So nearly every candidate that fits has a gain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Posterior:
    """The posterior of every candidate; arrays of shape (candidates,) unless stated otherwise."""

    log_speed: Array
    """Expected logarithms of samples per second."""
    highest_log_speed: Array
    """Upper bounds of these logarithms, by the time of the host; infinite where it is unknown."""
    log_memory: Array
    """Expected logarithms of bytes."""
    memory_deviation: Array
    """Standard deviations of ``log_memory``."""
    works: Array
    """Probability that all techniques of the candidate run."""
    choices: Indices
    """Indices of each candidate's choices, shape (candidates, axes)."""
    choice_works: Array
    """Probability that each choice runs, shape (choices,)."""
    times: CostModel
    """The model of the step times, which has their covariances."""
    model_errors: Array
    """Distance of ``log_speed`` from the model, where the model is far from a measurement."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemainingGain:
    """How much faster than the fastest measured candidate an unmeasured one could be."""

    expected: float = math.inf
    """Mean of the largest gain, as a share of the speed."""
    at_most: float = math.inf
    """Upper bound of the largest gain at the given probability, as a share of the speed; infinite
    while no measured candidate fits."""
    probability_any_fits: float
    """Probability that at least one unmeasured candidate fits the budget and runs."""
    values: Array
    """Value of measuring each candidate, shape (candidates,): its expected gain, and what it shows
    about others; 0 if it was not sampled. While nothing measured fits, the expected gain alone."""


def probability_to_fit(posterior: Posterior, budget_bytes: float) -> Array:
    """Probability that each candidate needs at most the budget, shape (candidates,)."""
    # The logarithm of the memory is normally distributed. Measured memory has no deviation, so a
    # tiny one keeps the division valid.
    room = math.log(budget_bytes) - posterior.log_memory
    deviation = np.maximum(posterior.memory_deviation, 1e-9)
    return _normal_cdf(room / deviation)


def expected_gains(
    posterior: Posterior, incumbent: int | None, fits: Array, is_open: Mask
) -> Array:
    """Expected improvement over the incumbent, shape (candidates,); 0 where a candidate is closed.
    The closed form for a normal distribution (Jones, Schonlau and Welch, 1998), of the ratio of the
    speeds, so that an error that both share cancels out."""
    highest = np.full(len(is_open), math.inf)
    if incumbent is None:
        # The usual speed is the mean, weighted by how likely a candidate fits and runs.
        weights = is_open * fits * posterior.works
        usual = np.average(posterior.log_speed, weights=weights if weights.any() else None)
        mean = posterior.log_speed - usual + _NO_INCUMBENT_DEFICIT
        variance = posterior.times.variance
    else:
        mean = posterior.log_speed - posterior.log_speed[incumbent]
        # If the model is wrong about the incumbent, it may be as wrong about the others.
        model_error = posterior.model_errors[incumbent]
        variance = _ratio_variance(posterior.times, incumbent) + model_error**2
        highest = np.maximum(_largest_gains(posterior, incumbent), 0.0)
    deviation = np.maximum(np.sqrt(variance), 1e-9)
    score = mean / deviation
    density = np.exp(-(score**2) / 2) / math.sqrt(2 * math.pi)
    improvement = np.minimum(deviation * (score * _normal_cdf(score) + density), highest)
    # A candidate that does not fit or does not run gains nothing.
    return np.asarray(rounded(is_open * improvement * fits * posterior.works))


def _largest_gains(posterior: Posterior, incumbent: int) -> Array:
    """Upper bounds of the gains over the incumbent, by the time of the host, (candidates,)."""
    return np.asarray(posterior.highest_log_speed - posterior.log_speed[incumbent])


def _ratio_variance(times: CostModel, incumbent: int) -> Array:
    """Var(a - b) = Var(a) + Var(b) - 2 Cov(a, b), of logarithms, shape (candidates,)."""
    every = np.arange(len(times.variance))
    shared = times.covariance(every, np.array([incumbent]))[:, 0]
    variance = times.variance + times.variance[incumbent] - 2 * shared
    # A variance can fall below zero by rounding.
    return np.asarray(np.maximum(variance, 0.0))


def remaining_gain(
    posterior: Posterior,
    incumbent: int | None,
    budget_bytes: float,
    gains: Array,
    *,
    probability: float,
    seed: int,
) -> RemainingGain:
    """The largest gain of any open candidate, from joint samples of those with the most expected
    ``gains``, because the gains of similar candidates correlate. ``probability`` is that of
    ``at_most``."""
    shortlist = np.argsort(-gains, kind="stable")[:_SHORTLIST]
    shortlist = shortlist[gains[shortlist] > 0]
    values = np.zeros(len(gains))
    if not len(shortlist):
        at_most = math.inf if incumbent is None else 0.0
        return RemainingGain(expected=0.0, at_most=at_most, probability_any_fits=0.0, values=values)
    generator = np.random.default_rng(seed)
    is_feasible = _feasible(posterior, shortlist, budget_bytes, generator)
    any_fits = float(is_feasible.any(axis=1).mean())
    if incumbent is None:
        # The question is what fits, and the speeds of other candidates show nothing about it.
        return RemainingGain(probability_any_fits=any_fits, values=gains)
    covariance = _ratio_covariance(posterior, shortlist, incumbent)
    ratios = _sampled_ratios(posterior, shortlist, incumbent, covariance, generator)
    # A gain of nothing is always possible: the incumbent stays.
    ratios = np.maximum(is_feasible * ratios, 0.0)
    values[shortlist] = rounded(_values(ratios, gains[shortlist], covariance))
    # A logarithm of a ratio becomes a share of the incumbent's speed.
    shares = np.expm1(ratios.max(axis=1))
    return RemainingGain(
        expected=float(rounded(shares.mean())),
        at_most=float(rounded(np.quantile(shares, probability))),
        probability_any_fits=any_fits,
        values=values,
    )


def _sampled_ratios(
    posterior: Posterior,
    rows: Indices,
    incumbent: int,
    covariance: Array,
    generator: np.random.Generator,
) -> Array:
    """Logarithms of the speeds relative to the incumbent's, in each sample, (samples, rows)."""
    mean = posterior.log_speed[rows] - posterior.log_speed[incumbent]
    # Rounding can make an eigenvalue slightly negative.
    ratios = generator.multivariate_normal(
        mean, covariance, _SAMPLES, check_valid="ignore", method="eigh"
    )
    return np.minimum(ratios, _largest_gains(posterior, incumbent)[rows])


def _values(sampled: Array, expected: Array, covariance: Array) -> Array:
    """Value of measuring each row, shape (rows,): its expected gain plus its information.

    In a sample, the gain of the best row exceeds the largest expected gain: this excess can be
    found only by measuring. A measurement of a row explains a part of the best row's variance, the
    squared correlation with it, noise included. The information is the mean of excess times this
    part.
    """
    best = sampled.argmax(axis=1)
    excess = np.maximum(sampled.max(axis=1) - expected.max(), 0.0)
    of_best = np.bincount(best, weights=excess, minlength=len(expected)) / len(sampled)
    # Speeds that are known exactly have no variance, so a tiny one keeps the division valid.
    variances = np.maximum(np.diag(covariance), 1e-12)
    # Corr² = Cov² / (Var(measurement of the row) · Var(best row)).
    explained = covariance**2 / np.outer(variances + _MEASUREMENT_NOISE**2, variances)
    explained = np.minimum(explained, 1.0)
    return np.asarray(expected + explained @ of_best)


def _feasible(
    posterior: Posterior, rows: Indices, budget_bytes: float, generator: np.random.Generator
) -> Mask:
    """Whether each candidate fits and runs, in each sample, shape (samples, rows)."""
    # Whether a choice runs is drawn once per sample, for all candidates with this choice together.
    draws = generator.random((_SAMPLES, len(posterior.choice_works)))
    is_working = draws < posterior.choice_works
    runs = is_working[:, posterior.choices[rows]].all(axis=2)
    # A normal error as the sum of a common part and an independent part; their variances add to 1.
    shared = generator.standard_normal((_SAMPLES, 1)) * math.sqrt(_SHARED_MEMORY_ERROR)
    independent = generator.standard_normal((_SAMPLES, len(rows)))
    independent *= math.sqrt(1 - _SHARED_MEMORY_ERROR)
    log_memory = posterior.log_memory[rows] + posterior.memory_deviation[rows] * (
        shared + independent
    )
    return np.asarray(runs & (log_memory <= math.log(budget_bytes)))


def _ratio_covariance(posterior: Posterior, rows: Indices, incumbent: int) -> Array:
    """Covariance of the logarithms of the speeds relative to the incumbent's."""
    together = np.append(rows, incumbent)
    covariance = posterior.times.covariance(together, together)
    # Cov(a - i, b - i), with the incumbent i as the last row.
    difference = np.eye(len(rows), len(together)) - np.eye(1, len(together), len(rows))
    # If the model is wrong about the incumbent, it may be as wrong about all others.
    of_ratios = difference @ covariance @ difference.T
    return np.asarray(of_ratios + posterior.model_errors[incumbent] ** 2)


def _normal_cdf(scores: Array) -> Array:
    from scipy.special import ndtr  # takes a tenth of a second to import

    return np.asarray(ndtr(scores))


def fastest_of(posterior: Posterior, candidates: Sequence[int], budget_bytes: float) -> int | None:
    """The candidate with the highest expected speed among those that fit; None if none fits."""
    limit = math.log(budget_bytes)
    fitting = [index for index in candidates if posterior.log_memory[index] <= limit]
    return max(fitting, key=posterior.log_speed.__getitem__, default=None)


def gains_by_forecast(
    posterior: Posterior,
    forecast: Array,
    incumbent: int | None,
    measured: Sequence[int],
    regret: float,
) -> Array:
    """Gains over the incumbent by forecasts of log speeds (-inf without) alone, because in the
    posterior what is uncertain gains much. Shape (candidates,). 0 without a forecast, and
    where measurements say that it gains at most ``regret``: by its posterior, or because its
    forecast is that of a measured candidate."""
    known, of_measured = np.isfinite(forecast), forecast[measured]
    if incumbent is None:
        rival = forecast[known].min(initial=np.finfo(float).max) - regret
    else:
        rival = (forecast if known[incumbent] else posterior.log_speed)[incumbent]
        known &= posterior.log_speed > posterior.log_speed[incumbent] + regret
    forecast = np.where(known, forecast, rival)
    is_measured = (np.abs(forecast[:, None] - of_measured) <= regret).any(axis=1)
    return np.where(is_measured, 0.0, np.maximum(forecast - rival, 0.0) * posterior.works)


def smaller_than_tried(posterior: Posterior, tried: Sequence[int], can_run: Mask) -> int | None:
    """The candidate of least memory, unless one that was tried needs about as little."""
    expected = np.where(can_run, posterior.log_memory, math.inf)
    least = posterior.log_memory[tried].min(initial=math.inf)
    return int(expected.argmin()) if expected.min() < least + math.log(1 - NEARLY) else None


def most_per_second(
    values: Array, gains: Array, seconds: Array, is_worth_measuring: Mask
) -> int | None:
    """The candidate whose measurement has the largest value per second of slot time, if any."""
    if not is_worth_measuring.any():
        return None
    # With an incumbent, only the shortlist has values. If it cannot be measured, the expected gains
    # decide.
    if not (is_worth_measuring & (values > 0)).any():
        values = gains
    compared = is_worth_measuring & (values > 0)
    # Rounded, so that the rounding errors of a machine do not decide between equal candidates.
    per_second = np.full(len(values), -math.inf)
    per_second[compared] = rounded(np.log(values[compared]) - np.log(seconds[compared]))
    return int(np.argmax(per_second))
