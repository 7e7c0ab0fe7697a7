"""A slot that starts late, beside a busy one, on a real Ray Tune, which by itself never uses it.

The driver computes on one core meanwhile, because the trials on its host need the others, and the
trials run at the usual priority.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import ray
from threadpoolctl import threadpool_info

from jobs.node.environment import cores
from jobs.record import TrialRecord
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.cluster import connected, run_trials
from orchestrator.running.cluster.messages import RECORD
from orchestrator.running.session import Session
from orchestrator.search.base import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.support.commands import printed_json, python
from tests.support.stand_in_slot import StandInSlot, equal_trials

TRIALS = 3000
SLOTS = 2

pytestmark = pytest.mark.slow


class BusySlot(StandInSlot):
    """Its trials take less than a slot needs to start, and say which process ran them."""

    def step(self) -> dict[str, Any]:
        time.sleep(0.1)
        result = super().step()
        if RECORD in result:
            own = {"pid": os.getpid(), "niceness": os.nice(0)}
            record = result[RECORD]
            measurements = {**record.measurements, **own}
            result[RECORD] = replace(record, measurements=measurements)
        return result


def blas_threads() -> int:
    """The threads that this process may compute on."""
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return max(int(library["num_threads"]) for library in libraries)


class Counting(Session):
    """Closes when every slot has run a trial."""

    slots: ClassVar[set[int]] = set()
    threads: ClassVar[set[int]] = set()
    niceness: ClassVar[set[int]] = set()

    def ended(self, record: TrialRecord) -> None:
        super().ended(record)
        self.threads.add(blas_threads())
        self.niceness.add(record.measurements["niceness"])
        self.slots.add(record.measurements["pid"])
        if len(self.slots) == SLOTS:
            self.close(CloseReason.ENDED)


def main(path: Path) -> None:
    """Print what was seen as JSON."""
    folder = RunFolder(path)
    session = Counting(Grid(equal_trials(TRIALS)), folder)
    ray.init(address="local", num_cpus=SLOTS, num_gpus=SLOTS, include_dashboard=False)
    with folder.locked(), connected(None) as cluster:
        run_trials(session, cluster, trainable=BusySlot)
    seen = {
        "slots": len(session.slots),
        "threads meanwhile": sorted(session.threads),
        "threads after": blas_threads(),
        "niceness": sorted(session.niceness),
    }
    print(json.dumps(seen))


def test_late_slot_runs_trials_beside_a_busy_one(tmp_path):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    module = ["-m", "tests.integration.test_late_slot"]
    done = python(*module, tmp_path, env=environment, check=True)
    assert printed_json(done.stdout) == {
        "slots": SLOTS,
        "threads meanwhile": [1],
        "threads after": min(2, cores()),
        "niceness": [os.nice(0)],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
