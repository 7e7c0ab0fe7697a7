"""Which profiled trial stands for a configuration, and its anatomy at the configuration's own
speed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from jobs.anatomy.time.operations import IDLE
from jobs.anatomy_record import Anatomy
from jobs.spec import Purpose
from orchestrator.storage.tables.rows import Row

MEMORY_LAYERS = (
    ("weights", "model_allocated_bytes"),
    ("optimizer states", "optimizer_state_bytes"),
    ("gradients, activations, buffers", "peak_allocated_bytes"),
    ("cached by the allocator", "peak_reserved_bytes"),
    ("context and libraries", "device_peak_bytes"),
)
"""Parts of a device's peak memory, from the inside out: each ends where its column says."""


def profile_sources(
    configurations: Iterable[Sequence[str]], follow_ups: Iterable[Row], profiled: Collection[str]
) -> dict[str, str]:
    """First trial of each configuration -> the trial with its anatomy: one of its repeats, or a
    follow-up.

    ``profiled`` are the trials that have an anatomy; configurations without one are left out.
    """
    followed: dict[str, list[str]] = {}
    for row in follow_ups:
        if row.get("purpose") == Purpose.PROFILE and row["trial_id"] in profiled:
            followed.setdefault(row["follows_trial"], []).append(row["trial_id"])
    found: dict[str, str] = {}
    for trial_ids in configurations:
        candidates = [trial_id for trial_id in trial_ids if trial_id in profiled]
        for trial_id in trial_ids:
            candidates += followed.get(trial_id, [])
        if candidates:
            found[trial_ids[0]] = candidates[0]
    return found


def at_speed_of(anatomy: Anatomy, row: Row) -> Anatomy:
    """A follow-up's anatomy with the followed trial's step time, which comes from more steps: idle
    time, rate, MFU.
    """
    seconds = row.get("step_seconds_median")
    if not seconds:
        return anatomy
    operations = anatomy.values("operations")
    busy_seconds = sum(spent for name, spent in operations.items() if name != IDLE)
    figures: dict[tuple[str, str], float] = {("operations", IDLE): max(0.0, seconds - busy_seconds)}
    efficiency = anatomy.values("efficiency")
    if profiled_rate := efficiency.get("rate"):
        rate = efficiency["model flop"] / seconds
        figures["efficiency", "rate"] = rate
        figures["efficiency", "MFU"] = efficiency.get("MFU", 0.0) * rate / profiled_rate
    entries = []
    for entry in anatomy.entries:
        value = figures.get((entry.part, entry.name), entry.value)
        entries.append(replace(entry, value=value))
    return replace(anatomy, entries=tuple(entries))


def memory_layers(row: Row) -> Mapping[str, int] | None:
    """Memory at the device's peak of a trial that was not profiled, by ``MEMORY_LAYERS``; None if
    it does not add up.

    Optimizer states that were offloaded are not on the device.
    """
    weights = row.get("model_allocated_bytes")
    is_offloaded = row.get("offload_optimizer_device") not in (None, "none")
    states = 0 if is_offloaded else row.get("optimizer_state_bytes")
    peaks = [row.get(column) for _, column in MEMORY_LAYERS[2:]]
    if weights is None or states is None or None in peaks:
        return None
    sizes = [weights, states]
    sizes += [end - begin for begin, end in pairwise([weights + states, *peaks])]
    if min(sizes) < 0:
        return None
    names = [name for name, _ in MEMORY_LAYERS]
    return dict(zip(names, sizes, strict=True))
