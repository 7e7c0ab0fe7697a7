"""Drivers given trials that take no time: this one, with and without Ray, and plain Ray Tune."""

from __future__ import annotations

import heapq
import logging
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import tune

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.cluster import connected, run_trials
from orchestrator.running.cluster.messages import RECORD, Assignment
from orchestrator.running.earlier_records import sort_earlier
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.records import make_record

SLOTS_OF_TUNE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRun:
    """Trials through a driver: its time and its resident memory."""

    name: str
    trials: int
    seconds: float
    processor_seconds: float
    """The driver's own."""
    resident_bytes: tuple[int, ...]
    """After each hundredth of the trials."""
    ended_bytes: int
    """Resident once the driver has ended. Tune writes its trials down at its end."""

    @property
    def per_second(self) -> float:
        """Trials per second."""
        return self.trials / self.seconds

    @property
    def milliseconds(self) -> float:
        """The driver's processor time per trial."""
        return 1000 * self.processor_seconds / self.trials


class Meter(tune.Callback):
    """Takes the time of a driver, and its resident memory as trials end.

    It is an observer of a session and a callback of Tune.
    """

    def __init__(self, trials: int) -> None:
        self._trials = trials
        self._ended = 0
        self._resident_bytes: list[int] = []
        self._seconds = 0.0
        self._processor_seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measures the time that the context lasts."""
        began = time.perf_counter()
        processor_began = time.process_time()
        yield
        self._seconds = time.perf_counter() - began
        self._processor_seconds = time.process_time() - processor_began

    def result(self, name: str) -> DriverRun:
        """What was measured."""
        return DriverRun(
            name=name,
            trials=self._trials,
            seconds=self._seconds,
            processor_seconds=self._processor_seconds,
            resident_bytes=tuple(self._resident_bytes),
            ended_bytes=psutil.Process().memory_info().rss,
        )

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        """A trial of a session has ended."""
        self._ended += 1
        if self._ended % max(1, self._trials // 100) == 0:
            self._resident_bytes.append(psutil.Process().memory_info().rss)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial of Tune has ended."""
        self.ended(make_record(), measured=True)

    def started(self, spec: TrialSpec) -> None:
        """Nothing to measure."""

    def message(self, text: str) -> None:
        """Nothing to measure."""

    def closed(self) -> None:
        """Nothing to measure."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes its callbacks down


def planned(trials: int) -> list[TrialSpec]:
    """Trials that are equal but for their number."""
    return [build_tiny_spec(repeat=number) for number in range(trials)]


def record_of(spec: TrialSpec) -> TrialRecord:
    """An invented record of usual size: a hundred measurements and a dozen steps."""
    invented = make_record()
    more = {f"figure_{number}": number / 7 for number in range(90)}
    steps = {"step_seconds": [0.1] * 12, "loss": [1.0] * 12}
    measurements = {**invented.measurements, **more}
    return replace(invented, spec=spec, measurements=measurements, steps=steps)


class StandIn(tune.Trainable):
    """A slot whose trials take no time."""

    def setup(self, config: dict[str, Any]) -> None:
        self.specs = config.get("specs", ())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.specs = new_config.get("specs", ())
        return True

    def assign(self, assignment: Assignment) -> None:
        """Take over what to run."""
        self.specs = assignment.specs

    def step(self) -> dict[str, Any]:
        if not self.specs:
            return {"done": True}
        return {RECORD: record_of(self.specs[0]), "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None


def ours(trials: int, folder: Path) -> DriverRun:
    """Through this driver: search, session, records on disk, Tune."""
    meter = Meter(trials)
    run_folder = RunFolder(folder)
    session = Session(Grid(planned(trials)), run_folder, [meter])
    with run_folder.locked(), connected(None) as cluster, meter.running():
        run_trials(session, cluster, trainable=StandIn)
    assert len(os.listdir(folder / "records")) == trials
    return meter.result("this driver")


def plain_tune(trials: int, folder: Path) -> DriverRun:
    """The same stand-ins through Tune's grid search, as its documentation shows it.

    The settings are ours: it logs nothing, and saves its state only at its end.
    """
    meter = Meter(trials)
    no_checkpoints = tune.CheckpointConfig(checkpoint_at_end=False, checkpoint_frequency=0)
    tuner = tune.Tuner(
        tune.with_resources(StandIn, {"cpu": 1, "gpu": 1}),
        param_space={"specs": tune.grid_search([[spec] for spec in planned(trials)])},
        tune_config=tune.TuneConfig(max_concurrent_trials=SLOTS_OF_TUNE + 1, reuse_actors=True),
        run_config=tune.RunConfig(
            name="plain",
            storage_path=str(folder),
            verbose=0,
            callbacks=[meter],
            checkpoint_config=no_checkpoints,
        ),
    )
    with meter.running():
        results = tuner.fit()
    assert len(results) == trials
    return meter.result("plain Ray Tune")


def without_ray(trials: int, slots: int, folder: Path) -> DriverRun:
    """The driver with simulated slots, whose trials take 2 to 20 simulated seconds.

    Every record is written.
    """
    meter = Meter(trials)
    run_folder = RunFolder(folder)
    session = Session(Grid(planned(trials)), run_folder, [meter])
    with run_folder.locked(), meter.running():
        for spec in _simulated(session, slots):
            session.ended(record_of(spec))
        session.write_missing_records()
        run_folder.describe({"name": "slots"})
    return meter.result(f"this driver, {slots:,} slots, no Ray")


def _simulated(session: Session, slots: int) -> Iterator[TrialSpec]:
    """The session's trials in the order in which they end."""
    generator = random.Random(0)
    running: list[tuple[float, str, TrialSpec]] = []
    now = 0.0
    while True:
        while len(running) < slots and (spec := session.next_trial()) is not None:
            heapq.heappush(running, (now + generator.uniform(2, 20), spec.trial_id, spec))
        if not running:
            return
        now, _, spec = heapq.heappop(running)
        yield spec


def resume(trials: int, folder: Path) -> None:
    """A second run of the same plan, until it knows that nothing is left to do."""
    plan = planned(trials)
    planned_ids = {spec.trial_id for spec in plan}
    run_folder = RunFolder(folder)
    earlier = sort_earlier(run_folder, lambda spec: spec.trial_id in planned_ids).wanted
    session = Session(Grid(plan), run_folder)
    environment = next(iter(earlier.values())).environment
    assert session.reuse(earlier, [environment], resume=True) == trials
    assert session.next_trial() is None


@contextmanager
def local_ray() -> Iterator[None]:
    """A Ray of this process, with invented GPUs."""
    ray.init(
        address="local",
        num_cpus=SLOTS_OF_TUNE,
        num_gpus=SLOTS_OF_TUNE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        yield
    finally:
        ray.shutdown()
