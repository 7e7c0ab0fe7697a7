"""Faults of one rank in real trials of two processes over gloo: each ends as one row.

    python -m tests.benchmarks.rank_faults [--timeout 10]

The rows are those of ``tests.support.rank_faults``, and faults that need a model. Exit status 1 if
one ends otherwise, or leaves a process, a file, a descriptor or, on a machine without other work,
shared memory.
"""

import argparse
import operator
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from jobs.isolation.slot import Slot
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.reporting.markdown import grid
from tests.conftest import build_tiny_spec
from tests.support import rank_faults
from tests.support.faults import with_fault
from tests.support.rank_faults import FAULTS, LATE, RankFault
from tests.support.tiny_decoders import MODEL

PARENT = """\
from jobs.trial import run as trial
from tests.support.faults import patient, striking
trial.run = striking(trial.run)
from jobs.isolation import forkserver, ranks
ranks.wait_for = patient(ranks.wait_for)
forkserver.main()
"""
LOST = RankFault("rendezvous", 1, "lose_rendezvous", Outcome.TIMED_OUT, LATE[1], is_named=False)
"""Both ranks must look for the file at which they meet."""
OF_THE_MODEL = (
    RankFault("first_step", 1, "wrong_rows", Outcome.FAILED, "IndexError"),
    RankFault("model", 1, "nan_loss", Outcome.OK, ""),
    RankFault("steps", 1, "slow_steps", Outcome.OK, ""),
)
"""They are hooks at the place "model", which act in a later phase."""


def trial() -> TrialSpec:
    spec = build_tiny_spec({"sharding": "ddp"}, warmup_steps=2, evaluate_and_save=True)
    return replace(spec, model=MODEL, world_size=2)


def trials() -> Iterator[tuple[RankFault, TrialSpec]]:
    for fault in (*FAULTS, LOST):
        yield fault, fault.strike(trial())
    for fault in OF_THE_MODEL:
        yield fault, with_fault(trial(), "in_rank", rank=fault.rank, fault=fault.fault)


def held(slot: Slot) -> tuple[int, int]:
    """How many descriptors the parent has open, and files of shared memory there are."""
    return len(os.listdir(f"/proc/{slot.parent_pid}/fd")), len(os.listdir("/dev/shm"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds of a phase that hangs")
    options = parser.parse_args()
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(patch.dict(os.environ, {"TMPDIR": str(folder)}))
        slot = stack.enter_context(Slot(1, parent_command=(sys.executable, "-c", PARENT)))
        slot.run(trial(), 300.0)
        rank_faults.left_of(slot, folder)  # the next child has been forked
        before = held(slot)
        for fault, spec in trials():
            is_late = fault.outcome is Outcome.TIMED_OUT
            begin = time.monotonic()
            record = slot.run(spec, options.timeout if is_late else 300.0)
            seconds = time.monotonic() - begin
            problems = [fault.problem_of(record), slot.run(trial(), 300.0).reason]
            problems += rank_faults.left_of(slot, folder)
            if any(map(operator.gt, now := held(slot), before)):
                problems.append(f"{now} held, before: {before}")
            row = [fault.name, *end_of(record), f"{seconds:.1f}", "; ".join(filter(None, problems))]
            print(*row, sep=" | ", flush=True)
            rows.append(row)
    print(*grid(["fault", "outcome", "phase", "reason", "seconds", "wrong"], rows), sep="\n")
    sys.exit(any(row[-1] for row in rows))


def end_of(record: TrialRecord) -> tuple[str, str, str]:
    flags = ", ".join(flag.kind for flag in record.flags)
    return record.outcome, record.phase, record.reason or flags


if __name__ == "__main__":
    main()
