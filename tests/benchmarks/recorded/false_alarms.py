"""Does ``compare`` call equal runs different, and does it find a planted regression?

Every pair of runs with equal environment, model and data is compared, in both orders. Whatever
differs in speed is a false alarm. Then the GPU-bound rows of the later run are made slower, and the
comparison is asked again.
"""

import itertools
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.analysis.comparison.changes import Comparison
from orchestrator.analysis.comparison.two_runs import VERSIONS, compare, differences
from orchestrator.analysis.dataset import Dataset, build_dataset, load_dataset
from orchestrator.analysis.repeatability import Pace, pace_of
from orchestrator.storage.run_reader import read_run_folder
from tests.benchmarks.recorded.runs import folders_below

SPEED_KINDS = ("slower", "faster")
MIN_ROWS = 5
"""Pairs of runs with fewer shared configurations are left out."""


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


def lines(options: Namespace) -> Iterator[str]:
    """One line a pair of runs, then both counts."""
    verdicts = list(judge(folders_below(options.runs), options.slower))
    for verdict in verdicts:
        first, second = verdict.names
        planted = "no GPU-bound rows"
        if verdict.gpu_bound >= MIN_ROWS:
            planted = "found" if verdict.found else "missed"
        yield (
            f"{first} | {second}: {verdict.matched} configurations, {verdict.gpu_bound} GPU-bound, "
            f"{verdict.alarms} false alarms, planted {options.slower:.0%}: {planted}"
        )
    alarmed = sum(verdict.alarms > 0 for verdict in verdicts)
    planted_in = [verdict for verdict in verdicts if verdict.gpu_bound >= MIN_ROWS]
    found = sum(verdict.found for verdict in planted_in)
    yield f"{alarmed} of {len(verdicts)} pairs of runs with a false alarm"
    yield f"{found} of {len(planted_in)} planted regressions of GPU-bound rows found"


def judge(folders: Sequence[Path], slower: float) -> Iterator[Verdict]:
    """A verdict for each ordered pair of comparable runs."""
    runs = [(folder, load_dataset(folder)) for folder in folders]
    for (first, before), (second, after) in itertools.permutations(runs, 2):
        if any(difference.part in VERSIONS for difference in differences(before, after)):
            continue
        comparison = compare(before, after)
        if comparison.matched < MIN_ROWS:
            continue
        planted = compare(before, planted_regression(second, slower))
        yield Verdict(
            names=(str(first), str(second)),
            matched=comparison.matched,
            gpu_bound=comparison.shift.rows if comparison.shift else 0,
            alarms=alarms(comparison),
            found=planted.fails(slower / 2),
        )


def alarms(comparison: Comparison) -> int:
    """How many changes of speed a comparison reports."""
    single = sum(change.kind in SPEED_KINDS for change in comparison.changes)
    of_all = comparison.shift is not None and comparison.shift.is_real
    return single + len(comparison.technique_shifts) + of_all


def planted_regression(folder: Path, slower: float) -> Dataset:
    """The run with all its GPU-bound rows slower by this share."""
    contents = read_run_folder(folder)
    rows = []
    for row in contents.trials.rows:
        if row.get("samples_per_second") and pace_of(row) is Pace.GPU:
            row = {**row, "samples_per_second": row["samples_per_second"] * (1 - slower)}
        rows.append(row)
    return build_dataset(replace(contents.trials, rows=rows), contents.losses)
