"""The comparison of two runs: configurations are matched, and each kind of change is looked for.

The speed of host-bound rows is not compared, because it is the speed of the host. The speed of rows
without a GPU is not compared either, because other programs share the processor. The speed of
launch-bound rows is compared only if the hosts are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.analysis.comparison.changes import KINDS, Change, ChangeKind, Comparison
from orchestrator.analysis.comparison.run_differences import HOSTS, SCHEDULE, VERSIONS, differences
from orchestrator.analysis.comparison.speed import (
    Pair,
    common_shift,
    single_changes,
    smallest_visible,
    technique_shifts,
)
from orchestrator.analysis.configuration import Configuration, choices_of
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.loss_parity.windows import ROUNDING, loss_windows, mismatch_ratio
from orchestrator.analysis.repeatability import Pace, pace_of
from orchestrator.storage.tables.rows import Row

MAX_ERROR = 0.25
"""If the 95 % interval of a row's mean step is wider than this share, its speed is not compared."""
TOLERANCES: Mapping[str, float] = {
    "peak_allocated_bytes": 0.005,
    "device_peak_bytes": 0.01,
    "host_peak_resident_bytes": 0.05,
}
"""Memory column -> the largest relative difference that is no change; the most repeatable first.
Allocated bytes are equal in repeats. The peak of the whole GPU and that of a process vary more."""
Result = Configuration | Row
"""A configuration that ended ok, else the row of its trial."""
Key = tuple[tuple[str, str], ...]
"""The choices that depart from the defaults, in order of their axes."""


def compare(before: Dataset, after: Dataset, *, different_hosts: bool = False) -> Comparison:
    """Match two runs by configuration.

    The caller decides whether their hardware may be compared.

    ``different_hosts``: even if the hosts differ, compare speeds that depend partly on the host.
    """
    earlier, later = _results_by_key(before), _results_by_key(after)
    results = [(earlier[key], later[key]) for key in earlier if key in later]
    matched: list[Pair] = []
    for old, new in results:
        if isinstance(old, Configuration) and isinstance(new, Configuration):
            matched.append((old, new))
    by_pace: dict[Pace, list[Pair]] = {pace: [] for pace in Pace}
    for pair in filter(_is_precise, matched):
        # If the two differ, the less repeatable pace counts. ``Pace`` is in falling order of that.
        by_pace[max((pace_of(own.row) for own in pair), key=list(Pace).index)].append(pair)
    gpu_bound = by_pace[Pace.GPU]
    judged = list(gpu_bound)
    launch_bound = by_pace[Pace.LAUNCHES]
    same_host = different_hosts or not any(differences(before, after, HOSTS))
    if same_host:
        judged += launch_bound
    same_schedule = not any(differences(before, after, SCHEDULE))
    changes = [
        *single_changes(before, judged),
        *_outcome_changes(before, after, results),
        *_memory_changes(before, matched),
        *_loss_changes(before, after, matched, same_schedule=same_schedule),
    ]
    return Comparison(
        matched=len(matched),
        unsteady=len(matched) - sum(map(len, by_pace.values())),
        host_bound=len(by_pace[Pace.HOST]),
        without_gpu=len(by_pace[Pace.CPU]),
        other_hosts=0 if same_host else len(launch_bound),
        losses_compared=same_schedule,
        changes=tuple(sorted(changes, key=_order)),
        shift=common_shift(gpu_bound),
        technique_shifts=tuple(technique_shifts(gpu_bound)),
        smallest_visible=smallest_visible(gpu_bound, len(judged)),
        only_before=len(earlier.keys() - later.keys()),
        only_after=len(later.keys() - earlier.keys()),
        differences=tuple(differences(before, after)),
    )


def _results_by_key(run: Dataset) -> dict[Key, Result]:
    """The result of each configuration of a run. A configuration that was only skipped has none."""
    results: dict[Key, Result] = {}
    for row in run.rows:
        if row["outcome"] not in (Outcome.OK, Outcome.SKIPPED):
            results[_key(choices_of(row, run.axes))] = row
    # A repeat that ended ok replaces a failed one, so the ok configurations are added last.
    for configuration in () if run.main is None else run.main.configurations:
        results[_key(configuration.choices)] = configuration
    return results


def _key(choices: Mapping[str, Any]) -> Key:
    """The choices that are not the default of their axis.

    A run may lack an axis that the other has. It then trained with the default of this axis.
    """
    changed = []
    for axis, value in choices.items():
        if axis not in AXES or str(value) != str(AXES[axis].default):
            changed.append((axis, str(value)))
    return tuple(sorted(changed))


def _is_precise(pair: Pair) -> bool:
    errors = [own.row.get("samples_per_second_ci95") for own in pair]
    # An error of exactly 0 is valid: on a coarse clock, all steps can take the same time.
    return all(error is not None and error < MAX_ERROR for error in errors)


def _outcome_changes(
    before: Dataset, after: Dataset, results: Iterable[tuple[Result, Result]]
) -> Iterator[Change]:
    """A "regressed" or "fixed" for each configuration that ended ok in one run only."""
    kind: ChangeKind
    for earlier, later in results:
        if isinstance(earlier, Configuration) and not isinstance(later, Configuration):
            kind, label, row = "regressed", before.label(earlier.choices), later
        elif isinstance(later, Configuration) and not isinstance(earlier, Configuration):
            kind, label, row = "fixed", after.label(later.choices), earlier
        else:
            continue
        outcome = Outcome(row["outcome"])
        yield Change(kind=kind, label=label, outcome=outcome, reason=row["reason"] or "")


def _memory_changes(before: Dataset, pairs: Iterable[Pair]) -> Iterator[Change]:
    """Changes of memory, read from the first column of ``TOLERANCES`` that both rows have."""
    for earlier, later in pairs:
        shared = [each for each in TOLERANCES if earlier.row.get(each) and later.row.get(each)]
        if shared:
            column = shared[0]
            ratio = later.row[column] / earlier.row[column]
            if abs(ratio - 1) > TOLERANCES[column]:
                yield Change(
                    kind="more memory" if ratio > 1 else "less memory",
                    label=before.label(earlier.choices),
                    before=earlier.row[column],
                    after=later.row[column],
                    ratio=ratio,
                    margin=TOLERANCES[column],
                )


def _loss_changes(
    before: Dataset, after: Dataset, pairs: Iterable[Pair], *, same_schedule: bool
) -> Iterator[Change]:
    """Loss mismatches between two runs.

    With equal versions, a mismatch is a difference larger than rounding. With other versions, it is
    larger than chance explains. ``same_schedule`` is False if the seed or the length of the
    training differs. Then only losses that are no longer finite are reported.
    """
    same_versions = not any(differences(before, after, VERSIONS))
    for earlier, later in pairs:
        old_losses = before.losses.get(earlier.trial_ids[0], ())
        new_losses = after.losses.get(later.trial_ids[0], ())
        if not old_losses or not new_losses or not all(map(math.isfinite, old_losses)):
            continue
        is_finite = all(map(math.isfinite, new_losses))
        ratio = None
        if same_schedule and is_finite:
            # Equal versions draw the same random numbers, so losses may differ by rounding only.
            precision = str(earlier.choices.get("precision", "fp32"))
            rounding = ROUNDING.get(precision, 0.0) if same_versions else None
            ratio = mismatch_ratio(loss_windows(new_losses, old_losses, rounding, 0.0))
        # A changed loss is always reported, so its size is no ``ratio`` to compare with a
        # tolerance.
        if ratio is not None or not is_finite:
            yield Change(kind="loss mismatch", label=before.label(earlier.choices), after=ratio)


def _order(change: Change) -> tuple[int, float]:
    """Sort key: the worst kind first, within a kind the largest change first."""
    # The logarithm makes a halving as large a change as a doubling.
    return KINDS.index(change.kind), -abs(math.log(change.ratio or 1))
