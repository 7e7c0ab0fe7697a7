"""Does ``compare`` call equal runs different, and does it find a planted regression?

Every pair of runs with equal environment, model and data is compared. Whatever differs in speed is
a false alarm. Then all GPU-bound rows of the later run are made slower, and the comparison is asked
again; and so for each such row alone.

How much slower a row must be depends on how far it is from the other by chance. So the regression
that nine of ten rows need is printed, beside the one that the comparisons promise. The bound below
is that of a judge who knows how far the rows of all these pairs are apart, and may give one of 20
pairs a false alarm: no limit on the rows' deviations, in units of their errors, finds more.
"""

import itertools
import math
import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.analysis.comparison import two_runs
from orchestrator.analysis.comparison.changes import Comparison
from orchestrator.analysis.comparison.speed import (
    FALSE_ALARM,
    Deviation,
    Pair,
    deviations,
    single_changes,
)
from orchestrator.analysis.comparison.two_runs import VERSIONS, compare, differences
from orchestrator.analysis.dataset import Dataset, build_dataset
from orchestrator.analysis.repeatability import Pace, pace_of
from tests.benchmarks.recorded.runs import dataset_of, folders_below

SPEED_KINDS = ("slower", "faster")
MIN_ROWS = 5
"""Pairs of runs with fewer shared configurations are left out."""
STEP_SECONDS = (0.0, 0.2, 0.4, 0.8, math.inf)
"""Bounds of the groups in which the single rows are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What ``compare`` says of two equal runs, and of the same runs with a planted regression."""

    names: tuple[str, str]
    matched: int
    gpu_bound: int
    alarms: int
    """Single changes of speed, shifts of techniques, and the shift of all rows."""
    found: bool
    """Whether the comparison fails over half of the planted regression."""
    found_alone: int
    """GPU-bound rows of which the other regression is reported when no other row has it."""
    rows: Sequence[Deviation]
    """The GPU-bound ones."""
    promised: float
    """The regression of one of them that ``compare`` says it finds in nine of ten cases."""


def lines(options: Namespace) -> Iterator[str]:
    """One line a pair of runs, then both counts."""
    verdicts = list(judge(folders_below(options.runs), options.slower, options.alone))
    for verdict in verdicts:
        first, second = verdict.names
        planted = "no GPU-bound rows"
        if verdict.gpu_bound >= MIN_ROWS:
            planted = f"{'found' if verdict.found else 'missed'} in all, alone in "
            planted += f"{verdict.found_alone} of {verdict.gpu_bound}"
        yield (
            f"{first} | {second}: {verdict.matched} configurations, {verdict.gpu_bound} GPU-bound, "
            f"{verdict.alarms} false alarms, planted: {planted}"
        )
    planted_in = [verdict for verdict in verdicts if verdict.gpu_bound >= MIN_ROWS]
    for name, pairs in (("", verdicts), (" with GPU-bound rows", planted_in)):
        alarmed = sum(verdict.alarms > 0 for verdict in pairs)
        yield f"{alarmed} of {len(pairs)} pairs of runs{name} with a false alarm"
    found = sum(verdict.found for verdict in planted_in)
    alone = sum(verdict.found_alone for verdict in planted_in)
    rows = sum(verdict.gpu_bound for verdict in planted_in)
    yield (
        f"{options.slower:.0%} slower: found in {found} of {len(planted_in)} pairs of runs; "
        f"one row {options.alone:.0%} slower: found in {alone} of {rows}"
    )
    promised = statistics.median(verdict.promised for verdict in planted_in)
    needed = [
        _needed(row, row.margin(FALSE_ALARM / len(verdict.rows)))
        for verdict in planted_in
        for row in verdict.rows
    ]
    yield f"nine of ten rows need {_nine_of_ten(needed):.1%}; compare promises {promised:.1%}"
    steps = [_step_seconds(row) for verdict in planted_in for row in verdict.rows]
    for low, high in itertools.pairwise(STEP_SECONDS):
        of_length = [own for own, step in zip(needed, steps, strict=True) if low < step <= high]
        yield (
            f"steps of {low:g} to {high:g} s: {sum(own < options.alone for own in of_length)} of "
            f"{len(of_length)}; nine of ten need {_nine_of_ten(of_length):.1%}"
        )
    yield from _bound([verdict.rows for verdict in planted_in], options.alone)


def _step_seconds(row: Deviation) -> float:
    before, _ = row.pair
    return float(before.row["effective_batch"]) / before.samples_per_second


def _needed(row: Deviation, margin: float) -> float:
    """The regression with which a row's deviation is beyond a margin."""
    return -math.expm1(-margin - row.log_ratio)


def _nine_of_ten(needed: Sequence[float]) -> float:
    return statistics.quantiles(needed, n=10)[-1]


def _bound(pairs: Sequence[Sequence[Deviation]], alone: float) -> Iterator[str]:
    """What the best limit of these pairs finds, and what it would find with more trials a row."""
    worst = [max(abs(row.log_ratio) / row.error.standard_error for row in rows) for rows in pairs]
    # One of 20 may be beyond the limit.
    limit = sorted(worst, reverse=True)[len(pairs) // 20]
    for trials in (1, 2, 3, 4):
        # The error of a mean of independent trials falls with the root of their number.
        needed = [
            -math.expm1((-limit * row.error.standard_error - row.log_ratio) / math.sqrt(trials))
            for row in itertools.chain.from_iterable(pairs)
        ]
        found = sum(own < alone for own in needed)
        yield (
            f"bound with {trials} trials a row: {found} of {len(needed)}; "
            f"nine of ten rows need {_nine_of_ten(needed):.1%}"
        )


def judge(folders: Sequence[Path], slower: float, alone: float) -> Iterator[Verdict]:
    """A verdict for each pair of comparable runs."""
    runs = [(folder, dataset_of(folder)) for folder in folders]
    for (first, before), (second, after) in itertools.combinations(runs, 2):
        if any(difference.part in VERSIONS for difference in differences(before, after)):
            continue
        comparison = compare(before, after)
        if comparison.matched < MIN_ROWS:
            continue
        # The run with all its GPU-bound rows slower by this share.
        rows = []
        for row in map(dict, after.table.rows):
            if row.get("samples_per_second") and pace_of(row) is Pace.GPU:
                row["samples_per_second"] *= 1 - slower
            rows.append(row)
        planted = compare(before, build_dataset(replace(after.table, rows=rows), after.losses))
        # The configurations of two runs whose speed the GPU limits in both.
        pairs = two_runs._pairs(two_runs._tried(before), two_runs._tried(after))
        gpu_bound = two_runs._by_pace(pairs)[Pace.GPU]
        yield Verdict(
            names=(str(first), str(second)),
            matched=comparison.matched,
            gpu_bound=comparison.shift.rows if comparison.shift else 0,
            alarms=alarms(comparison),
            found=planted.fails(slower / 2),
            found_alone=found_alone(before, gpu_bound, alone),
            rows=deviations(gpu_bound),
            promised=comparison.smallest_visible or 0.0,
        )


def found_alone(before: Dataset, pairs: Sequence[Pair], slower: float) -> int:
    """In how many of the pairs a change is reported if this one's later row is slower."""
    found = 0
    for number, (earlier, later) in enumerate(pairs):
        speed = later.samples_per_second * (1 - slower)
        planted = [*pairs]
        planted[number] = (earlier, replace(later, samples_per_second=speed))
        changes = single_changes(before, deviations(planted))
        found += any(
            change.kind == "slower" and change.label == before.label(earlier.choices)
            for change in changes
        )
    return found


def alarms(comparison: Comparison) -> int:
    """How many changes of speed a comparison reports."""
    single = sum(change.kind in SPEED_KINDS for change in comparison.changes)
    of_all = comparison.shift is not None and comparison.shift.is_real
    return single + len(comparison.technique_shifts) + of_all
