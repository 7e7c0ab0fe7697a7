"""`tune` replayed on a simulated decoder of 1.2 B parameters, in its whole space, without a GPU.

    python -m tests.benchmarks.tuned [--seeds 20] [--minutes 2,5] [--noise 0.01]

The truth is what `decoder.py` says: recorded rows, and factors where no row was recorded. The
priors of techniques come from all other models (leave one model out). Regret is the share of the
best speed of the whole space that a pick lacks; "recorded" counts the seeds whose picks are all at
least as fast as those of the recorded run, an expert's grid.
"""

from __future__ import annotations

import os

from tests.support.arithmetic import ENVIRONMENT

os.environ.update(ENVIRONMENT)

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.benchmarks.tuned.replay import Outcomes, Setting, replayed

SHOWN_BUDGETS = (24, 40, 80)
"""GiB."""


def report(setting: Setting, seeds: int, workers: int | None) -> Iterator[str]:
    """Lines: the search after one amount of GPU time."""
    yield f"after {setting.minutes:g} GPU-minutes, {setting.noise:.0%} noise, {seeds} seeds"
    heads = "".join(f"{f'{budget} GiB':>9} {'best':>6} {'worst':>6}" for budget in setting.gib)
    yield (
        f"  {'trials':>6}{heads} {'within 2 %':>10} {'recorded':>8} {'claims kept':>11}"
        f" {'said':>6} {'choice':>8}"
    )
    with ProcessPoolExecutor(workers) as pool:
        yield _line(setting, list(pool.map(partial(replayed, setting), range(seeds))))


def _line(setting: Setting, outcomes: Sequence[Outcomes]) -> str:
    cells = ""
    for number in range(len(setting.gib)):
        speeds = [own.speeds[number] for own in outcomes]
        best = [own.best[number] for own in outcomes]
        regrets = [1 - speed / top for speed, top in zip(speeds, best, strict=True)]
        cells += (
            f" {statistics.fmean(speeds):8.1f} {statistics.fmean(best):6.1f} {max(regrets):6.1%}"
        )
    within = statistics.fmean(own.worst_regret <= 0.02 for own in outcomes)
    as_recorded = statistics.fmean(own.is_as_recorded for own in outcomes)
    claims = [claim for own in outcomes for claim in own.claims]
    kept, said = "", ""
    if claims:
        kept = f"{statistics.fmean(true <= most + 1e-9 for most, true in claims):.0%}"
        said = f"{statistics.median(most for most, _ in claims):.1%}"
    slowest = max(own.slowest_choice for own in outcomes)
    return (
        f"  {statistics.fmean(own.trials for own in outcomes):6.1f}{cells}"
        f" {within:10.0%} {as_recorded:8.0%} {kept:>11} {said:>6} {slowest:6.2f} s"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.tuned",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    add("--seeds", type=int, default=20, help="simulated decoders per figure")
    add("--minutes", default="2,5", help="GPU time of all trials, as of --gpu-minutes")
    add("--noise", type=float, default=0.01, help="deviation of a measured speed")
    add("--workers", type=int, help="processes; default: one per core")
    options = parser.parse_args()
    for minutes in options.minutes.split(","):
        setting = Setting(
            minutes=float(minutes),
            noise=options.noise,
            gib=SHOWN_BUDGETS,
        )
        began = time.monotonic()
        for line in report(setting, options.seeds, options.workers):
            print(line, flush=True)
        print(f"  replayed in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
