"""Losses that changed: beyond rounding, or where versions differ, beyond what chance explains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from orchestrator.analysis.comparison.changes import Change
from orchestrator.analysis.comparison.pairs import Pair
from orchestrator.analysis.comparison.run_differences import VERSIONS, differences
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.loss_parity import ROUNDING, loss_windows, mismatch_ratio


def loss_changes(
    before: Dataset, after: Dataset, pairs: Iterable[Pair], *, same_schedule: bool
) -> Iterator[Change]:
    """Loss mismatches between two runs.

    ``same_schedule`` is False where seed or length of training differ: then only losses that are no
    longer finite count.
    """
    same_versions = not any(differences(before, after, VERSIONS))
    for earlier, later in pairs:
        old_losses = before.losses.get(earlier.trial_ids[0], ())
        new_losses = after.losses.get(later.trial_ids[0], ())
        if not old_losses or not new_losses or not _are_finite(old_losses):
            continue
        label = before.label(earlier.choices)
        if not _are_finite(new_losses):
            yield Change(kind="loss mismatch", label=label)
            continue
        if not same_schedule:
            continue
        # With equal versions the same random numbers are drawn, and only rounding may differ.
        precision = str(earlier.choices.get("precision", "fp32"))
        rounding = ROUNDING.get(precision, 0.0) if same_versions else None
        ratio = mismatch_ratio(loss_windows(new_losses, old_losses, rounding, 0.0))
        if ratio is not None:
            # A changed loss is always reported, so its size is no ``ratio`` to compare with a
            # tolerance.
            yield Change(kind="loss mismatch", label=label, after=ratio)


def _are_finite(losses: Sequence[float]) -> bool:
    return all(map(math.isfinite, losses))
