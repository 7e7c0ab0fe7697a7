"""Finds the profile of a configuration, and adapts its times to the configuration's own speed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from jobs.anatomy.time.operations import IDLE
from jobs.anatomy_record import Anatomy
from jobs.spec import Purpose
from orchestrator.analysis.dataset import Dataset
from orchestrator.storage.tables.rows import Row

MEMORY_LAYERS: Mapping[str, str] = {
    "weights": "model_allocated_bytes",
    "optimizer states": "optimizer_state_bytes",
    "gradients, activations, buffers": "peak_allocated_bytes",
    "cached by the allocator": "peak_reserved_bytes",
    "context and libraries": "device_peak_bytes",
}
"""Part of a device's peak memory -> its column, from the innermost part to the outermost. The last
three are peaks, which include all parts before them."""


def anatomy_of(run: Dataset, trial_ids: Sequence[str], row: Row) -> Anatomy | None:
    """The anatomy of a configuration at its own speed; None if it was not profiled. It is that of a
    repeat, else that of a follow-up which profiled one. ``row`` is a repeat's row."""
    followers = [
        follower["trial_id"]
        for follower in run.follow_ups
        if follower.get("purpose") == Purpose.PROFILE and follower["follows_trial"] in trial_ids
    ]
    profiled = [each for each in (*trial_ids, *followers) if each in run.anatomies]
    return _at_speed_of(run.anatomies[profiled[0]], row) if profiled else None


def _at_speed_of(anatomy: Anatomy, row: Row) -> Anatomy:
    """Idle time, rate and MFU follow the step time of ``row``, which comes from more steps."""
    seconds = row.get("step_seconds_median")
    if not seconds:
        return anatomy
    operations = anatomy.values("operations").items()
    busy = sum(duration for name, duration in operations if name != IDLE)
    # Kernels of a profiled step may take longer than a whole step without the profiler.
    figures = {("operations", IDLE): max(0.0, seconds - busy)}
    efficiency = anatomy.values("efficiency")
    if efficiency.get("rate"):
        # The operations of a step are the same at any speed, so rate and MFU change together.
        rate = efficiency["model flop"] / seconds
        figures["efficiency", "rate"] = rate
        figures["efficiency", "MFU"] = efficiency.get("MFU", 0.0) * rate / efficiency["rate"]
    return replace(
        anatomy,
        entries=tuple(
            replace(entry, value=figures.get((entry.part, entry.name), entry.value))
            for entry in anatomy.entries
        ),
    )


def memory_layers(row: Row) -> Mapping[str, int] | None:
    """Part of ``MEMORY_LAYERS`` -> bytes at the device's peak, for a trial without a profile. None
    if a column is missing, or if the parts do not add up."""
    weights = row.get("model_allocated_bytes")
    is_offloaded = row.get("offload_optimizer_device") not in (None, "none")
    states = 0 if is_offloaded else row.get("optimizer_state_bytes")
    peaks = [row.get(column) for column in list(MEMORY_LAYERS.values())[2:]]
    if weights is None or states is None or None in peaks:
        return None
    # Each peak contains the one before it. The first contains weights and optimizer states.
    outer_layers = [outer - inner for inner, outer in pairwise([weights + states, *peaks])]
    sizes = dict(zip(MEMORY_LAYERS, [weights, states, *outer_layers], strict=True))
    return sizes if min(sizes.values()) >= 0 else None
