"""Flags for a trial whose GPU was shared with other processes."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.flags import Flag, FlagKind
from jobs.node import gpu_sharing
from jobs.spec import LibrarySettings

GIB = 2**30
PLAIN = LibrarySettings(training_arguments={"optim": "adamw_torch"})
PAGED = LibrarySettings(training_arguments={"optim": "paged_adamw_8bit"})


def row(used: float, before: float = 0.6, processes: int = 0) -> dict[str, int]:
    """A trial that took ``used`` GiB. Of these, the context has 0.6 and the allocator 10."""
    gib = {
        "device_peak_bytes": used,
        "gpu_used_before_bytes": before,
        "gpu_context_bytes": 0.6,
        "peak_reserved_bytes": 10,
    }
    nbytes = {name: round(value * GIB) for name, value in gib.items()}
    return {**nbytes, "gpu_foreign_processes": processes}


@pytest.mark.parametrize(
    ("measurements", "settings", "kind", "value"),
    [
        (row(114.8), PLAIN, FlagKind.SHARED_DURING, 104.2 * GIB),
        (row(14.6, processes=2), PAGED, FlagKind.SHARED_PROCESSES, 2),
        (row(10.8, before=30), PLAIN, FlagKind.SHARED_BEFORE, 30 * GIB),
    ],
)
def test_flags_of_a_shared_gpu(
    measurements: dict[str, Any], settings: LibrarySettings, kind: FlagKind, value: float
) -> None:
    (flag,) = gpu_sharing.flags(measurements, settings)
    assert flag == Flag(kind, pytest.approx(value, rel=1e-6))


@pytest.mark.parametrize(
    ("measurements", "settings"),
    [
        (row(10.8), PLAIN),
        (row(11.7), PLAIN),
        (row(14.6), PAGED),
        ({"gpu_used_before_bytes": 1}, PLAIN),
        ({}, PLAIN),
    ],
    ids=["libraries", "nccl", "paged_states", "ended_early", "cpu"],
)
def test_flags_of_an_unshared_gpu_are_none(
    measurements: dict[str, Any], settings: LibrarySettings
) -> None:
    assert gpu_sharing.flags(measurements, settings) == []
