"""What measuring by hand costs, and the share of it that a sweep took.

By hand is the method of the Hugging Face guides: one configuration at a time, in a process of its
own, for one epoch of 512 samples with a plain Trainer. The script that measured it is in commit
30d11852.
"""

import json
import statistics
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.record import Outcome
from tests.benchmarks.recorded.runs import dataset_of


def lines(options: Namespace) -> Iterator[str]:
    return report(json.loads(options.sample.read_text()), options.runs)


def report(sample: Mapping[str, Any], runs: Sequence[Path]) -> Iterator[str]:
    """Markdown: every price, the mean, the plan at that mean, and each run's share of it.

    ``sample`` has the number of ``planned`` configurations, and the ``prices`` of some of them.
    """
    planned, prices = sample["planned"], sample["prices"]
    yield "| configuration | seconds | in train() | |"
    yield "| --- | ---: | ---: | --- |"
    for price in prices:
        name = " · ".join(str(value) for value in price["choices"].values())
        training = price["training_seconds"]
        shown = "" if training is None else f"{training:.1f}"
        failure = price["failure"].replace("|", " ")
        yield f"| {name} | {price['seconds']:.1f} | {shown} | {failure} |"
    seconds = [price["seconds"] for price in prices]
    mean = statistics.fmean(seconds)
    yield ""
    yield f"{len(seconds)} of {planned} configurations"
    yield f"{min(seconds):.1f} to {max(seconds):.1f} s each, mean {mean:.1f} s"
    yield f"all {planned} at that mean: {planned * mean:.0f} s"
    for run in runs:
        rows = dataset_of(run).rows
        taken = sum(row["slot_seconds"] or 0.0 for row in rows)
        ran = sum(row["outcome"] != Outcome.SKIPPED for row in rows)
        share = f"{taken / (planned * mean):.2%}"
        yield f"{run}: {ran} trials, {taken:.0f} s of slot time, {share} of that"
