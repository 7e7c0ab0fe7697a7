"""How much the steps of one trial vary: the source of the prior in ``jobs/steady_state.py``.

The prior of a trial's variance is a scaled inverse chi-squared one. Its scale is a share of the
step, and at most some milliseconds. Fitted to recorded trials whose speed is the GPU's own. Also
shown is what the stopping rule would have made of these trials.
"""

import itertools
import math
import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from jobs.record import Outcome
from jobs.steady_state import MIN_STEPS, is_settled
from orchestrator.storage.layout import STEPS
from orchestrator.storage.tables.table_reader import read_steps
from tests.benchmarks.grids import is_gpus_own
from tests.benchmarks.recorded.runs import dataset_of

FREEDOM = np.geomspace(0.5, 3, 28)
SHARE = np.geomspace(0.003, 0.015, 28)
SECONDS = np.geomspace(0.002, 0.012, 28)
"""The values that are tried: degrees of freedom, share of the step, longest standard deviation."""
RELATIVE_ERROR = 0.01
STEP_SECONDS = (0.0, 0.2, 0.8, 1.6, math.inf)
"""Bounds of the groups in which the stopping rule is shown."""

Trial = Sequence[float]
"""Seconds of a trial's counted steps."""


def lines(options: Namespace) -> Iterator[str]:
    return report(list(trials(options.runs)))


def trials(folder: Path) -> Iterator[Trial]:
    """The GPU-bound trials of every run in a folder that have at least two counted steps."""
    for path in sorted(folder.rglob(STEPS)):
        seconds: dict[str, list[float]] = {}
        # Follow-ups are repeats of trials, and their steps vary equally.
        for row in dataset_of(path.parent).table.rows:
            if row["outcome"] == Outcome.OK and is_gpus_own(row):
                seconds[row["trial_id"]] = []
        for step in read_steps(path.parent, ("trial_id", "counted", "device_seconds")):
            if step["counted"] and step["trial_id"] in seconds:
                seconds[step["trial_id"]].append(step["device_seconds"])
        yield from (counted for counted in seconds.values() if len(counted) > 1)


def fit(trials: Sequence[Trial]) -> tuple[float, float, float]:
    """The likeliest degrees of freedom, share of the step and longest deviation in seconds."""
    freedom = np.array([len(seconds) - 1 for seconds in trials])
    mean = np.array([statistics.fmean(seconds) for seconds in trials])
    variance = np.array([statistics.variance(seconds) for seconds in trials]) / mean**2
    best = (-math.inf, (0.0, 0.0, 0.0))
    for prior, share, longest in itertools.product(FREEDOM, SHARE, SECONDS):
        scale = np.minimum(share, longest / mean) ** 2
        # A variance of 0 has no likelihood; clocks are not that exact.
        ratio = np.maximum(variance / scale, 1e-9)
        likelihood = float(np.sum(_log_fisher(ratio, freedom, prior) - np.log(scale)))
        best = max(best, (likelihood, (float(prior), float(share), float(longest))))
    return best[1]


def _log_fisher(ratio: np.ndarray, freedom: np.ndarray, prior: float) -> np.ndarray:
    """Logarithm of Fisher's density with ``freedom`` and ``prior`` degrees, up to a constant.

    It is the distribution of a sample's variance over the scale of an inverse chi-squared prior
    (Gelman et al., Bayesian Data Analysis, 3rd edition, section 2.6).
    """
    kinds, kind = np.unique(freedom, return_inverse=True)
    of_kind = [math.lgamma((own + prior) / 2) - math.lgamma(own / 2) for own in kinds.tolist()]
    constant = np.array(of_kind)[kind] - math.lgamma(prior / 2)
    power = freedom / 2 * np.log(freedom / prior) + (freedom / 2 - 1) * np.log(ratio)
    tail: np.ndarray = (freedom + prior) / 2 * np.log1p(freedom / prior * ratio)
    density: np.ndarray = constant + power - tail
    return density


def stopped(seconds: Trial) -> Trial:
    """The steps after which the stopping rule would have ended the trial; all if it would not."""
    for steps in range(MIN_STEPS, len(seconds)):
        if is_settled(seconds[:steps], RELATIVE_ERROR):
            return seconds[:steps]
    return seconds


def report(trials: Sequence[Trial]) -> Iterator[str]:
    """The prior, and the stopping rule's error by the length of a step."""
    freedom, share, longest = fit(trials)
    yield (
        f"{len(trials)} trials: a standard deviation of {share:.2%} of the step,"
        f" at most {longest * 1e3:.1f} ms, worth {freedom:.1f} degrees of freedom"
    )
    for low, high in itertools.pairwise(STEP_SECONDS):
        group = [seconds for seconds in trials if low < statistics.fmean(seconds) <= high]
        ended = [(stopped(seconds), seconds) for seconds in group]
        sooner = [(few, seconds) for few, seconds in ended if len(few) < len(seconds)]
        if sooner:
            yield f"steps of {low:g} to {high:g} s: {len(sooner)} of {len(group)} end sooner, with"
            yield f"  {_effect(sooner)}"


def _effect(sooner: Sequence[tuple[Trial, Trial]]) -> str:
    """What became of trials that ended sooner: their steps, and the error of their mean step."""
    few_steps = sum(len(few) for few, _ in sooner)
    all_steps = sum(len(seconds) for _, seconds in sooner)
    errors = []
    for few, seconds in sooner:
        errors.append(abs(statistics.fmean(few) / statistics.fmean(seconds) - 1))
    errors.sort()
    ninth = errors[int(0.9 * len(errors))]
    return (
        f"{few_steps} of {all_steps} steps; mean steps are off by {statistics.median(errors):.2%}"
        f" in the median, nine of ten by at most {ninth:.2%}"
    )
