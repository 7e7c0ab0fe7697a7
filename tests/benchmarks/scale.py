"""How far it goes: ten thousand trials beside bare Ray Tune, a thousand slots, a run resumed, a million rows reported.

    python -m tests.benchmarks.scale [tune] [slots] [resume] [table] [--output DIR]

``tune`` runs stand-ins for trials, which take no time, through Ray Tune and this driver, beside a bare Tune in the
same minutes: round about in small rounds for the speed, then ten thousand each for the driver's memory. ``slots`` is
the driver without Ray: a thousand slots whose trials take simulated seconds. ``resume`` reads that run again.
``table`` writes the tables and pages of a million rows. Ratios are of one run on one machine.
"""

from __future__ import annotations

import argparse
import heapq
import io
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import psutil
from ray import tune

from jobs.environment import cores
from jobs.record import TrialRecord, record_to_json
from jobs.spec import TrialSpec, spec_from_json, to_json
from orchestrator.running import cluster as ray_cluster
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.running.store import RunFolder
from orchestrator.search.frontier import Frontier
from orchestrator.search.grid import Grid
from orchestrator.search.base import Search
from tests.benchmarks import million
from tests.conftest import build_tiny_spec
from tests.unit.records import make_grid, make_record

SLOTS_OF_TUNE = 2
MIB = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """So many trials through a driver: seconds, and its resident memory as they ended."""

    name: str
    trials: int
    seconds: float
    resident_bytes: tuple[int, ...]
    """After each hundredth of the trials."""

    @property
    def per_second(self) -> float:
        """Trials a second."""
        return self.trials / self.seconds


class Meter:
    """Resident memory of this process, after each hundredth of the trials."""

    def __init__(self, trials: int) -> None:
        self._every, self._ended, self._process = max(1, trials // 100), 0, psutil.Process()
        self.resident_bytes: list[int] = []

    def tick(self) -> None:
        """A trial has ended."""
        self._ended += 1
        if self._ended % self._every == 0:
            self.resident_bytes.append(self._process.memory_info().rss)


def planned(trials: int) -> list[TrialSpec]:
    """Alike but for their number."""
    return [build_tiny_spec(repeat=number) for number in range(trials)]


def of(spec: TrialSpec) -> TrialRecord:
    """An invented record of usual size: a hundred measurements and a dozen steps."""
    own = make_record()
    figures = {**own.measurements, **{f"figure_{number}": number / 7 for number in range(90)}}
    return replace(own, spec=spec, measurements=figures, steps={"step_seconds": [0.1] * 12, "loss": [1.0] * 12})


class StandIn(tune.Trainable):
    """A slot whose trials take no time."""

    def setup(self, config: dict[str, Any]) -> None:
        return None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True

    def step(self) -> dict[str, Any]:
        record = of(spec_from_json(json.loads(self.config["spec"])))
        return {"record": json.dumps(record_to_json(record)), "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None


class Watch(tune.Callback):
    """Tells a meter of every trial."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._meter.tick()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes its callbacks down


def ours(trials: int, folder: Path) -> Run:
    """Through this driver: search, session, records on disk, progress, Tune."""
    meter = Meter(trials)

    class Metered(Session):
        def ended(self, record: TrialRecord) -> None:
            super().ended(record)
            meter.tick()

    run_folder = RunFolder(folder)
    progress = Progress(trials, SLOTS_OF_TUNE, (), stream=io.StringIO())
    session = Metered(Grid(planned(trials)), run_folder, progress, time_budget_seconds=None)
    with (
        run_folder.locked(),
        ray_cluster.connected(None) as cluster,
        mock.patch.object(ray_cluster, "_SlotTrainable", StandIn),
    ):
        begin = time.perf_counter()
        ray_cluster.run(session, cluster)
        seconds = time.perf_counter() - begin
    assert len(os.listdir(folder / "records")) == trials
    return Run(name="ours", trials=trials, seconds=seconds, resident_bytes=tuple(meter.resident_bytes))


def bare(trials: int, folder: Path) -> Run:
    """The same stand-ins through Tune's own grid search, as its documentation has it."""
    meter = Meter(trials)

    specs = [json.dumps(to_json(spec)) for spec in planned(trials)]
    tuner = tune.Tuner(
        tune.with_resources(StandIn, {"cpu": 1, "gpu": 1}),
        param_space={"spec": tune.grid_search(specs)},
        tune_config=tune.TuneConfig(max_concurrent_trials=SLOTS_OF_TUNE + 1, reuse_actors=True),
        run_config=tune.RunConfig(
            name="bare",
            storage_path=str(folder),
            verbose=0,
            callbacks=[Watch(meter)],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False, checkpoint_frequency=0),
        ),
    )
    begin = time.perf_counter()
    results = tuner.fit()
    seconds = time.perf_counter() - begin
    assert len(results) == trials
    return Run(name="bare Ray Tune", trials=trials, seconds=seconds, resident_bytes=tuple(meter.resident_bytes))
