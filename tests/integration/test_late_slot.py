"""A slot that comes late, beside one that is busy, on a real Ray Tune, which left to itself never uses it.

And what the driver computes meanwhile takes one core: the trials on its host need theirs, at a usual priority.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
from threadpoolctl import threadpool_info

from jobs.record import TrialRecord, record_to_json
from jobs.spec import spec_from_json
from orchestrator.running import cluster as ray_cluster
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.benchmarks.drivers import SLOTS_OF_TUNE, StandIn, local_ray, of, planned

ROOT = Path(__file__).parents[2]
TRIALS = 300

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class BusySlot(StandIn):
    """Its trials take less than a slot needs to start, and say which process ran them."""

    def step(self) -> dict[str, Any]:
        time.sleep(0.1)
        record = of(spec_from_json(json.loads(self.config["specs"][0])))
        told = replace(
            record, measurements={**record.measurements, "pid": os.getpid(), "niceness": os.nice(0)}
        )
        return {"record": json.dumps(record_to_json(told)), "done": True}


def threads() -> int:
    """How many this process computes on."""
    return max(
        int(library["num_threads"])
        for library in threadpool_info()
        if library["user_api"] == "blas"
    )


class Counting(Session):
    """Ends when every slot has run a trial."""

    slots: ClassVar[set[int]] = set()
    threads: ClassVar[set[int]] = set()
    niceness: ClassVar[set[int]] = set()

    def ended(self, record: TrialRecord) -> None:
        super().ended(record)
        self.threads.add(threads())
        self.niceness.add(record.measurements["niceness"])
        self.slots.add(record.measurements["pid"])
        if len(self.slots) == SLOTS_OF_TUNE:
            self.close("seen")


def main(path: Path) -> None:
    """Say how many slots have run a trial, how many threads this process may compute on, and on how many it did; and
    the trials' niceness."""
    progress = Progress(TRIALS, SLOTS_OF_TUNE, (), stream=io.StringIO())
    folder = RunFolder(path)
    session = Counting(Grid(planned(TRIALS)), folder, progress, time_budget_seconds=None)
    slots = mock.patch.object(ray_cluster, "SlotTrainable", BusySlot)
    with folder.locked(), local_ray(), ray_cluster.connected(None) as cluster, slots:
        ray_cluster.run(session, cluster)
    print(len(session.slots), threads(), *session.threads, *session.niceness)


def test_every_slot_runs_trials(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.integration.test_late_slot", str(tmp_path)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert [int(word) for word in done.stdout.splitlines()[-1].split()] == [SLOTS_OF_TUNE, 2, 1, 0]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
