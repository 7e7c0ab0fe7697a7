"""What the steps of one trial spread by, in the recorded tables: where the figures in ``jobs/steady_state.py`` come from.

    python -m tests.benchmarks.spread [RUNS]

Of the GPU's own speeds only. The likeliest prior for a trial's variance, a scaled inverse chi-squared one whose scale
is a share of the step but no longer than some milliseconds; and what the stopping rule would have made of those trials.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from jobs.steady_state import FEWEST_STEPS, is_settled
from orchestrator.storage import run_metadata as names
from tests.benchmarks.efficiency import ROOT
from tests.benchmarks.repeats import is_the_gpus

RUNS = ROOT / "docs" / "results"
FREEDOM, SHARE, SECONDS = (
    np.geomspace(0.5, 3, 28),
    np.geomspace(0.003, 0.015, 28),
    np.geomspace(0.002, 0.012, 28),
)
ERROR = 0.01
BOUNDS = (0.0, 0.2, 0.8, 1.6, math.inf)


def trials(runs: Path) -> Iterator[list[float]]:
    """The seconds of the counted steps of each trial whose speed was its GPU's, at least two of them."""
    for path in sorted(runs.rglob(names.STEPS)):
        rows = pq.read_table(path.with_name(names.TRIALS)).to_pylist()
        own = {row["trial_id"] for row in rows if row["outcome"] == "ok" and is_the_gpus(row)}
        taken: dict[str, list[float]] = defaultdict(list)
        for step in pq.read_table(path).to_pylist():
            if step["counted"] and step["trial_id"] in own:
                taken[step["trial_id"]].append(step["device_seconds"])
        yield from (seconds for seconds in taken.values() if len(seconds) > 1)


def fit(taken: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """The likeliest degrees of freedom, share of the step and seconds: a sample's variance over the prior's scale
    follows Fisher's F."""
    freedom = np.array([len(seconds) - 1 for seconds in taken])
    kinds, kind = np.unique(freedom, return_inverse=True)
    mean = np.array([statistics.fmean(seconds) for seconds in taken])
    variance = np.array([statistics.variance(seconds) for seconds in taken]) / mean**2

    def likelihood(prior: float, share: float, longest: float) -> float:
        scale = np.minimum(share, longest / mean) ** 2
        ratio = np.maximum(variance / scale, 1e-9)
        gamma = np.array(
            [math.lgamma((one + prior) / 2) - math.lgamma(one / 2) for one in kinds.tolist()]
        )
        log_density = (
            gamma[kind]
            - math.lgamma(prior / 2)
            + freedom / 2 * np.log(freedom / prior)
            + (freedom / 2 - 1) * np.log(ratio)
            - (freedom + prior) / 2 * np.log1p(freedom / prior * ratio)
        )
        return float(np.sum(log_density - np.log(scale)))

    return max(itertools.product(FREEDOM, SHARE, SECONDS), key=lambda one: likelihood(*one))


def stopped(seconds: Sequence[float]) -> Sequence[float]:
    """Those that would have told enough, or all."""
    firsts = (seconds[:run] for run in range(FEWEST_STEPS, len(seconds)))
    return next((few for few in firsts if is_settled(few, ERROR)), seconds)


def report(taken: Sequence[Sequence[float]]) -> Iterator[str]:
    """Lines."""
    freedom, share, longest = fit(taken)
    yield (
        f"{len(taken)} trials: a spread of {share:.2%} of the step, at most {longest * 1e3:.1f} ms, worth"
        f" {freedom:.1f} degrees of freedom"
    )
    for low, high in itertools.pairwise(BOUNDS):
        among = [seconds for seconds in taken if low < statistics.fmean(seconds) <= high]
        cut = [
            (stopped(seconds), seconds) for seconds in among if len(stopped(seconds)) < len(seconds)
        ]
        off = sorted(
            abs(statistics.fmean(few) / statistics.fmean(seconds) - 1) for few, seconds in cut
        )
        if off:
            yield (
                f"steps of {low:g} to {high:g} s: {len(cut)} of {len(among)} would end sooner, after"
                f" {sum(len(few) for few, _ in cut)} steps of {sum(len(seconds) for _, seconds in cut)}; the mean of"
                f" all is then off by {statistics.median(off):.2%} (nine of ten: {off[int(0.9 * len(off))]:.2%})"
            )


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spread")
    parser.add_argument("runs", type=Path, nargs="?", default=RUNS)
    print("\n".join(report(list(trials(parser.parse_args().runs)))))


if __name__ == "__main__":
    main()
