"""Which faults the check of losses would have found in recorded trials.

Every fault is planted in the losses of one trial at a time, of those whose losses match. Beside
that stands what a match excludes: the smallest difference that the trial would have shown.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median

from jobs.record import Outcome
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.loss_parity.loss_checks import LossChecker
from orchestrator.analysis.loss_parity.windows import CheckState
from orchestrator.storage.run_reader import read_run_folder
from tests.benchmarks.recorded.runs import folders_below

FAULTS: Mapping[str, Callable[[Sequence[float]], list[float]]] = {
    "a term of 1 % is missing": lambda losses: [0.99 * loss for loss in losses],
    "a term of 10 % is missing": lambda losses: [0.9 * loss for loss in losses],
    "a fifth of the positions counts twice": lambda losses: [1.2 * loss for loss in losses],
    "half of the loss": lambda losses: [0.5 * loss for loss in losses],
    "twice the loss": lambda losses: [2.0 * loss for loss in losses],
    "30 % too high in the second half": lambda losses: [
        loss * (1.3 if 2 * step >= len(losses) else 1.0) for step, loss in enumerate(losses)
    ],
}


def lines(options: Namespace) -> Iterator[str]:
    """What a match excludes, then a line for each fault."""
    checkers = []
    for folder in folders_below(options.runs):
        run = read_run_folder(folder)
        ok = [row for row in run.trials.rows if row["outcome"] == Outcome.OK]
        for rows in grouped(ok, itemgetter("environment_id")).values() if run.losses else ():
            checkers.append((LossChecker(rows, dict(run.losses), run.trials.axes), rows))
    bounds: list[float] = []
    states: Counter[CheckState] = Counter()
    found = {name: Counter[CheckState]() for name in FAULTS}
    for checker, rows in checkers:
        for row in rows:
            check = checker.check(row)
            states[check.state] += 1
            if check.state is CheckState.MATCHES:
                bounds.append(check.bound or 0.0)
                for name, fault in FAULTS.items():
                    found[name][checker.check(row, fault(checker.losses_of(row))).state] += 1
    yield ", ".join(f"{states[state]:,} {state}" for state in CheckState)
    bounds.sort()
    tenth = bounds[int(0.9 * len(bounds))]
    yield (
        f"a match excludes differences of {median(bounds):.2%} in the median, in nine of ten of "
        f"{tenth:.1%}, and always of {bounds[-1]:.1%}"
    )
    for name, counts in found.items():
        seen, unsure = counts[CheckState.MISMATCH], counts[CheckState.NOT_CHECKED]
        yield (
            f"{name}: {seen / counts.total():.1%} mismatch, {unsure / counts.total():.1%} not "
            f"checked, {counts[CheckState.MATCHES] / counts.total():.1%} match"
        )
