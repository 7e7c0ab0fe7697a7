"""Others on a trial's GPU: seen whenever they come, by their number or by what they hold, and put in words."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.node import gpu_sharing, nvml
from jobs.spec import Recipe
from jobs.trackers import device
from jobs.trackers.base import NOTHING, Held, Moment
from jobs.trackers.device import Device
from tests.benchmarks.paired import named
from tests.benchmarks.visited import visited

RESULTS = Path(__file__).parents[4] / "docs" / "results"
GIB = 2**30
PLAIN, PAGED = (
    Recipe(training_arguments={"optim": name}) for name in ("adamw_torch", "paged_adamw_8bit")
)
OTHER = 2**22 - 1
"""A process id that is nobody's here."""


class Gpu:
    """An invented one, as ``pynvml`` tells of it: what is in use, and by which processes."""

    class NVMLError(Exception):
        """Nothing but these two questions is answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used, self.pids, self.asked = 0, [os.getpid()], threading.Event()
        monkeypatch.setattr(nvml, "session", self._session)
        monkeypatch.setattr(nvml, "visible_uuids", lambda: ["GPU-0"])
        monkeypatch.setattr(device, "_POLL_SECONDS", 0.001)

    @contextmanager
    def _session(self) -> Iterator[Any]:
        yield self

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(used=self.used)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        pids = self.pids
        if OTHER in pids:
            self.asked.set()
        return [SimpleNamespace(pid=pid) for pid in pids]

    def __getattr__(self, name: str) -> Any:
        raise self.NVMLError(name)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """It is the trial's alone."""
    return Gpu(monkeypatch)


def others(tracker: Device) -> int:
    return int(tracker.measurements()["gpu_foreign_processes"])


def test_a_visitor_between_two_moments_is_seen(gpu: Gpu) -> None:
    with Device() as tracker:
        tracker.start(Held(device_bytes=1))
        for moment in (Moment.CONTEXT, Moment.MODEL, Moment.TRAIN_BEGIN):
            tracker.at(moment, 0.0)
        assert others(tracker) == 0
        gpu.pids, gpu.used = [os.getpid(), OTHER], GIB
        assert gpu.asked.wait(timeout=60)
        gpu.pids, gpu.used = [os.getpid()], 0
        tracker.at(Moment.TRAIN_END, 0.0)
        assert others(tracker) == 1


def test_who_is_there_when_a_training_fails_is_seen(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_POLL_SECONDS", 60.0)
    with Device() as tracker:
        tracker.start(Held(device_bytes=1))
        tracker.at(Moment.TRAIN_BEGIN, 0.0)
        gpu.pids, gpu.used = [os.getpid(), OTHER], GIB
        assert others(tracker) == 1


def test_while_nobody_takes_memory_it_is_not_asked_who_is_there(gpu: Gpu) -> None:
    with Device() as tracker:
        tracker.start(Held(device_bytes=1))
        gpu.pids, gpu.used = [OTHER], GIB
        for asked in (True, False):
            gpu.asked.clear()
            tracker.at(Moment.TRAIN_END, 0.0)
            assert gpu.asked.is_set() is asked


@pytest.mark.parametrize("pids", [[], [OTHER]], ids=["hidden", "renumbered"])
def test_what_a_container_tells_of_the_trial_itself_is_no_visitor(
    gpu: Gpu, pids: list[int]
) -> None:
    gpu.pids = pids
    with Device() as tracker:
        tracker.start(Held(device_bytes=1))
        tracker.at(Moment.TRAIN_END, 0.0)
        assert others(tracker) == 0


def test_who_is_there_before_a_context_is_somebody_else(gpu: Gpu) -> None:
    gpu.pids = [OTHER]
    with Device() as tracker:
        tracker.start(NOTHING)
        assert others(tracker) == 1


def test_the_trials_own_processes_are_no_visitors(gpu: Gpu) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as own,
        Device() as tracker,
    ):
        gpu.pids = [os.getpid(), own.pid]
        tracker.start(Held(device_bytes=1))
        tracker.at(Moment.TRAIN_END, 0.0)
        own.kill()
        assert others(tracker) == 0


def figures(used: float, before: float = 0.6, others: int = 0) -> dict[str, int]:
    """Of a trial that took so many GiB, 0.6 for its context and 10 by the allocator."""
    gib = {
        "device_peak_bytes": used,
        "gpu_used_before_bytes": before,
        "gpu_context_bytes": 0.6,
        "peak_reserved_bytes": 10,
    }
    return {
        **{name: round(value * GIB) for name, value in gib.items()},
        "gpu_foreign_processes": others,
    }


@pytest.mark.parametrize(
    ("row", "recipe", "said"),
    [
        (figures(10.8), PLAIN, []),
        (figures(11.7), PLAIN, []),  # with NCCL
        (figures(14.6), PAGED, []),
        (
            figures(114.8),
            PLAIN,
            ["shared: 104.2 GiB of the GPU were neither the context's nor the allocator's"],
        ),
        (figures(14.6, others=2), PAGED, ["shared: 2 other processes were on the GPU"]),
        (
            figures(10.8, before=30),
            PLAIN,
            ["shared: 30.0 GiB of the GPU were in use before the trial"],
        ),
        ({"gpu_used_before_bytes": 1}, PLAIN, []),  # it ended before anything was read
        ({}, PLAIN, []),  # there is no GPU
    ],
)
def test_company_is_put_in_words(row: dict[str, int], recipe: Recipe, said: list[str]) -> None:
    assert gpu_sharing.warnings(row, recipe) == said
    assert gpu_sharing.is_shared(["unstable: a single step counted", *said]) is bool(said)


def test_published_rows_had_no_company_but_where_it_is_said() -> None:
    runs = sorted(path.parent for path in RESULTS.glob("**/trials.parquet"))
    found = {
        str(run.relative_to(RESULTS)): set(rows) for run in runs if (rows := visited(named(run)))
    }
    folder = "2026-11-23-visited-2xh200"
    assert found.keys() == {f"{folder}/frontier", f"{folder}/grid"}
    assert found[f"{folder}/frontier"] == {"32842c3b82c7", "fb6cdc90f5e3"}
    assert len(found[f"{folder}/grid"]) == 8
    assert len(runs) > 30
