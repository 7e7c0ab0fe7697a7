"""Trials of two ranks as real processes that only pretend to train: what ends one ends both."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.isolation import prewarm
from jobs.isolation.slot import Slot, SlotDiedError
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec, from_json, to_json
from tests.conftest import build_tiny_spec
from tests.support import light_parent
from tests.support.commands import python
from tests.support.faults import has_ended, with_fault
from tests.support.rank_faults import FAULTS, RankFault, left_of, processes_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of the slot's processes."""
    return tmp_path_factory.mktemp("slot")


@pytest.fixture(scope="module")
def slot(folder: Path) -> Iterator[Slot]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(prewarm.FOLDER_VARIABLE, raising=False)
        for name, value in {**light_parent.variables(), "TMPDIR": str(folder)}.items():
            patch.setenv(name, value)
        with Slot(cpus=1, parent_command=light_parent.COMMAND) as slot:
            slot.start()
            yield slot


def trial(act: str = "end", **measure: Any) -> TrialSpec:
    spec = build_tiny_spec(**measure)
    return replace(spec, choices={**spec.choices, "act": act}, world_size=2)


def test_trial_of_two_ranks_is_one_record_of_both(slot):
    record = slot.run(trial(), 60.0)
    assert (record.outcome, record.reason) == (Outcome.OK, "")
    assert record.measurements["world_size"] == 2


def test_command_runs_the_trial_of_a_record_in_a_process_for_each_rank(tmp_path):
    file = tmp_path / "record.json"
    file.write_text(json.dumps({"spec": to_json(trial()), "outcome": "ok"}))
    variables = {**os.environ, **light_parent.variables()}
    done = python("-m", "jobs", file, check=True, env=variables)
    record = from_json(TrialRecord, json.loads(done.stdout))
    assert (record.outcome, record.measurements["world_size"]) == (Outcome.OK, 2)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_has_the_variables_of_its_place(rank, slot, tmp_path):
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"]
    file = str(tmp_path / "variables")
    noting = {"rank": rank, "fault": "note_variables", "file": file, "names": names}
    slot.run(with_fault(trial(), "in_rank", **noting), 60.0)
    noted = json.loads(Path(file).read_text())
    assert noted == dict(zip(names, [str(rank), "2", "0", "127.0.0.1"], strict=True))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_of_one_rank_ends_both_and_names_phase_and_rank(fault, slot, folder):
    # The other rank would wait for it in a collective operation.
    act = "end" if fault.outcome is Outcome.OK else "hang"
    spec = fault.strike(trial(act=act, evaluate_and_save=True))
    record = slot.run(spec, 1.0 if fault.outcome is Outcome.TIMED_OUT else 60.0)
    # ``pytest -s`` prints a table.
    print(f"| {fault.name} | {record.outcome} | {record.phase} | {record.reason} |")
    assert fault.problem_of(record) == ""
    assert slot.run(trial(), 60.0).outcome is Outcome.OK
    assert left_of(slot, folder) == []


def test_rank_that_kills_the_slots_parent_ends_with_the_other_one(slot, folder):
    with pytest.raises(SlotDiedError):
        slot.run(RankFault("steps", 1, "kill_parent", Outcome.CRASHED, "").strike(trial()), 60.0)
    assert all(has_ended(pid) for pid in processes_of(folder))
    assert slot.run(trial(), 60.0).outcome is Outcome.OK
    assert left_of(slot, folder) == []


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_driver_that_is_ended_takes_both_ranks_along(sent, tmp_path):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(to_json(trial(act="hang"))))
    folder = tmp_path / "temporary"
    folder.mkdir()
    variables = {**os.environ, **light_parent.variables(), "TMPDIR": str(folder)}
    with subprocess.Popen([sys.executable, "-m", "jobs", str(file)], env=variables) as driver:
        while sum(b"steps" in phase.read_bytes() for phase in folder.glob("*/*/phase")) < 2:
            assert driver.poll() is None
        driver.send_signal(sent)
    assert all(has_ended(pid) for pid in processes_of(folder))


def test_fresh_processes_are_ranks_of_one_trial(slot, folder):
    spec = trial()
    record = slot.run(replace(spec, measure=replace(spec.measure, isolation="fresh")), 60.0)
    assert (record.outcome, record.provenance.isolation) == (Outcome.OK, "fresh")
    assert record.measurements["world_size"] == 2
