"""Drivers under a load of trials that take no time: this one on Ray Tune, a bare Ray Tune, this one without Ray."""

from __future__ import annotations

import heapq
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import tune

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.reporting.publish import publish
from orchestrator.running.cluster import connected, run_trials
from orchestrator.running.cluster.messages import RECORD, Assignment
from orchestrator.running.lifecycle import wanted_records
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.records import make_record

SLOTS_OF_TUNE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """So many trials through a driver: seconds, and its resident memory as they ended."""

    name: str
    trials: int
    seconds: float
    processor_seconds: float
    """The driver's own."""
    resident_bytes: tuple[int, ...]
    """After each hundredth of the trials."""
    ended_bytes: int
    """Resident when the driver has ended too: Tune writes down all its trials then."""

    @property
    def per_second(self) -> float:
        """Trials a second."""
        return self.trials / self.seconds

    @property
    def milliseconds(self) -> float:
        """The driver's processor time for a trial."""
        return 1000 * self.processor_seconds / self.trials


@dataclass(frozen=True, kw_only=True, slots=True)
class Took:
    """How long something took in this process."""

    seconds: float
    processor_seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s ({self.processor_seconds:.1f} s of processor time)"


class Meter:
    """Resident memory of this process, after each hundredth of the trials, and its time."""

    def __init__(self, trials: int) -> None:
        self._every, self._ended, self._process = max(1, trials // 100), 0, psutil.Process()
        self._resident_bytes: list[int] = []
        self._trials, self._took = trials, Took(seconds=0.0, processor_seconds=0.0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """For the time of the trials."""
        begin, processor = time.perf_counter(), time.process_time()
        yield
        self._took = Took(
            seconds=time.perf_counter() - begin, processor_seconds=time.process_time() - processor
        )

    def run(self, name: str) -> Run:
        """What was seen."""
        memory = {
            "resident_bytes": tuple(self._resident_bytes),
            "ended_bytes": self._process.memory_info().rss,
        }
        return Run(name=name, trials=self._trials, **memory, **asdict(self._took))

    def tick(self) -> None:
        """A trial has ended."""
        self._ended += 1
        if self._ended % self._every == 0:
            self._resident_bytes.append(self._process.memory_info().rss)


def planned(trials: int) -> list[TrialSpec]:
    """Alike but for their number."""
    return [build_tiny_spec(repeat=number) for number in range(trials)]


def of(spec: TrialSpec) -> TrialRecord:
    """An invented record of usual size: a hundred measurements and a dozen steps."""
    own = make_record()
    figures = {**own.measurements, **{f"figure_{number}": number / 7 for number in range(90)}}
    return replace(
        own, spec=spec, measurements=figures, steps={"step_seconds": [0.1] * 12, "loss": [1.0] * 12}
    )


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
        return {RECORD: of(self.specs[0]), "done": True}

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
    session = Metered(Grid(planned(trials)), run_folder)
    with run_folder.locked(), connected(None) as cluster, meter.running():
        run_trials(session, cluster, trainable=StandIn)
    assert len(os.listdir(folder / "records")) == trials
    return meter.run("this driver")


def bare(trials: int, folder: Path) -> Run:
    """The same stand-ins through Tune's own grid search, as its documentation has it, but with our settings of Tune: it
    logs nothing, and saves its state at its end only."""
    meter = Meter(trials)

    specs = [[spec] for spec in planned(trials)]
    tuner = tune.Tuner(
        tune.with_resources(StandIn, {"cpu": 1, "gpu": 1}),
        param_space={"specs": tune.grid_search(specs)},
        tune_config=tune.TuneConfig(max_concurrent_trials=SLOTS_OF_TUNE + 1, reuse_actors=True),
        run_config=tune.RunConfig(
            name="bare",
            storage_path=str(folder),
            verbose=0,
            callbacks=[Watch(meter)],
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_at_end=False, checkpoint_frequency=0
            ),
        ),
    )
    with meter.running():
        results = tuner.fit()
    assert len(results) == trials
    return meter.run("bare Ray Tune")


def slots(trials: int, at_once: int, folder: Path) -> Run:
    """The driver without Ray: ``at_once`` slots whose trials take simulated seconds; every record is written."""
    meter, chance = Meter(trials), random.Random(0)
    run_folder = RunFolder(folder)
    session = Session(Grid(planned(trials)), run_folder)
    with run_folder.locked(), meter.running():
        running: list[tuple[float, str, TrialSpec]] = []
        now = 0.0
        while True:
            while len(running) < at_once and (spec := session.next_trial()) is not None:
                heapq.heappush(running, (now + chance.uniform(2, 20), spec.trial_id, spec))
            if not running:
                break
            now, _, spec = heapq.heappop(running)
            session.ended(of(spec))
            meter.tick()
        session.write_missing_records()
        run_folder.describe({"name": "slots"})
    return meter.run(f"this driver, {at_once:,} slots, no Ray")


def timed(work: Callable[[], object]) -> Took:
    """Do it once."""
    begin, processor = time.perf_counter(), time.process_time()
    work()
    return Took(
        seconds=time.perf_counter() - begin, processor_seconds=time.process_time() - processor
    )


def resume(trials: int, folder: Path) -> tuple[Took, Took]:
    """Until a second run of the same plan knows that nothing is left to do; and to publish its records."""

    def resumed() -> None:
        plan = planned(trials)
        wanted = {spec.trial_id for spec in plan}
        run_folder = RunFolder(folder)
        earlier = wanted_records(run_folder, lambda spec: spec.trial_id in wanted)
        session = Session(Grid(plan), run_folder)
        kept = session.reuse(earlier, [next(iter(earlier.values())).environment], resume=True)
        assert kept == trials
        assert session.next_trial() is None

    return timed(resumed), timed(lambda: publish(folder))


@contextmanager
def local_ray() -> Iterator[None]:
    """A Ray of one's own, with invented GPUs."""
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=SLOTS_OF_TUNE, num_gpus=SLOTS_OF_TUNE, **options)
    try:
        yield
    finally:
        ray.shutdown()
