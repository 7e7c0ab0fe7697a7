"""Changes of the losses between two runs.

With equal versions, a change is a difference larger than rounding. With other versions, it is a
difference larger than chance explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from orchestrator.analysis.comparison.changes import Change
from orchestrator.analysis.comparison.pairs import Pair
from orchestrator.analysis.comparison.run_differences import VERSIONS, differences
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.loss_parity import ROUNDING, loss_windows, mismatch_ratio


def loss_changes(
    before: Dataset, after: Dataset, pairs: Iterable[Pair], *, same_schedule: bool
) -> Iterator[Change]:
    """Loss mismatches between two runs.

    ``same_schedule`` is False if the seed or the length of the training differs. Then only losses
    that are no longer finite are reported.
    """
    same_versions = not any(differences(before, after, VERSIONS))
    for earlier, later in pairs:
        old_losses = before.losses.get(earlier.trial_ids[0], ())
        new_losses = after.losses.get(later.trial_ids[0], ())
        if not old_losses or not new_losses or not _are_finite(old_losses):
            continue
        ratio = None
        if same_schedule and _are_finite(new_losses):
            ratio = _mismatch(earlier, old_losses, new_losses, same_versions=same_versions)
        # A changed loss is always reported, so its size is no ``ratio`` to compare with a
        # tolerance.
        if ratio is not None or not _are_finite(new_losses):
            label = before.label(earlier.choices)
            yield Change(kind="loss mismatch", label=label, after=ratio)


def _mismatch(
    earlier: Configuration,
    old_losses: Sequence[float],
    new_losses: Sequence[float],
    *,
    same_versions: bool,
) -> float | None:
    """The new mean loss divided by the old one; None if they match."""
    # Equal versions draw the same random numbers, so the losses may differ by rounding only.
    rounding = None
    if same_versions:
        precision = str(earlier.choices.get("precision", "fp32"))
        rounding = ROUNDING.get(precision, 0.0)
    return mismatch_ratio(loss_windows(new_losses, old_losses, rounding, 0.0))


def _are_finite(losses: Sequence[float]) -> bool:
    return all(map(math.isfinite, losses))
