"""The record of a trial of several ranks, from the records of the ranks."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from jobs.flags import flag_columns
from jobs.node.nvml import link_of
from jobs.record import Column, TrialRecord

_PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes", "device_peak_bytes")
"""Of these the trial has the largest, because the GPUs of a trial are of one size."""
_TOTALS = ("samples_per_second", "tokens_per_second", "real_tokens_per_second", "energy_joules")

COLUMNS = (
    Column.count("world_size", "Processes that trained together, on a GPU each; null for one"),
    *(
        Column(f"rank_{name}", "list<double>", f"The {name} of each rank; null for one", unit="B")
        for name in _PEAKS
    ),
    Column.text(
        "gpu_link",
        "Slowest link between two GPUs of the trial: NVLink, or PCIe and what lies between; null "
        "on one GPU, or if NVML does not say",
    ),
    Column.rate("samples_per_second_per_gpu", "The samples_per_second of each GPU; null for one"),
)


def merged(records: Sequence[TrialRecord]) -> TrialRecord:
    """Rank 0's record with the largest peaks, the throughput of all ranks, and the mean losses. All
    have ended ok. A Trainer multiplies the loss of a rank by the number of ranks, because their
    gradients are averaged; so the mean is the loss of the whole step."""
    first, *others = records
    if not others:
        return first
    values = {**first.measurements, **_figures(records), **_flags(records)}
    steps = dict(first.steps)
    if "loss" in steps:
        losses = zip(*(record.steps["loss"] for record in records), strict=True)
        steps["loss"] = list(map(fmean, losses))
        values |= {"loss_first": steps["loss"][0], "loss_last": steps["loss"][-1]}
    return replace(first, measurements=values, steps=steps)


def _figures(records: Sequence[TrialRecord]) -> dict[str, Any]:
    """The columns that follow from the same column of all ranks."""
    by_rank = [record.measurements for record in records]
    values: dict[str, Any] = {"world_size": len(records)}
    if link := link_of([own.get("gpu_uuid") for own in by_rank]):
        values["gpu_link"] = link
    for name in filter(by_rank[0].__contains__, _PEAKS):
        peaks = [float(own[name]) for own in by_rank]
        values |= {name: int(max(peaks)), f"rank_{name}": peaks}
    for name in filter(by_rank[0].__contains__, _TOTALS):
        values[name] = sum(own[name] for own in by_rank)
    if "samples_per_second" in values:
        values["samples_per_second_per_gpu"] = values["samples_per_second"] / len(records)
    if "energy_joules" in values:
        samples = values["samples_per_second"] * by_rank[0]["counted_seconds"]
        values["joules_per_sample"] = values["energy_joules"] / samples
    return values


def _flags(records: Sequence[TrialRecord]) -> dict[str, Any]:
    """The columns of the flags that any rank has; of several of a kind, the first rank's."""
    by_kind = {flag.kind: flag for record in reversed(records) for flag in record.flags}
    return flag_columns(list(by_kind.values()))
