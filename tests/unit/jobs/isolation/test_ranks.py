"""Trials of two ranks as real processes that only pretend to train: what ends one ends both."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.isolation import prewarm
from jobs.isolation.slot import Slot
from jobs.record import Outcome, record_from_json
from jobs.spec import TrialSpec, to_json
from tests.conftest import build_tiny_spec
from tests.support import light_parent
from tests.support.commands import python
from tests.support.faults import idle_child, with_fault


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of the slot's processes."""
    return tmp_path_factory.mktemp("slot")


@pytest.fixture(scope="module")
def slot(folder: Path) -> Iterator[Slot]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(prewarm.FOLDER_VARIABLE, raising=False)
        patch.setenv("TMPDIR", str(folder))
        with Slot(cpus=1, parent_command=light_parent.COMMAND) as slot:
            slot.start()
            yield slot


def trial(fault: str = "", *, rank: int = 1, **more: Any) -> TrialSpec:
    spec = replace(build_tiny_spec(), world_size=2)
    return with_fault(spec, "in_rank", rank=rank, fault=fault, **more) if fault else spec


def test_trial_of_two_ranks_is_one_record_of_both(slot):
    record = slot.run(trial(), 60.0)
    assert (record.outcome, record.reason) == (Outcome.OK, "")
    assert record.measurements["world_size"] == 2


def test_command_runs_the_trial_of_a_record_in_a_process_for_each_rank(tmp_path):
    file = tmp_path / "record.json"
    file.write_text(json.dumps({"spec": to_json(trial()), "outcome": "ok"}))
    variables = {**os.environ, **light_parent.variables()}
    done = python("-m", "jobs", file, check=True, env=variables, timeout=60)
    record = record_from_json(json.loads(done.stdout))
    assert (record.outcome, record.measurements["world_size"]) == (Outcome.OK, 2)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_has_the_variables_of_its_place(rank, slot, tmp_path):
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"]
    file = str(tmp_path / "variables")
    slot.run(trial("note_variables", rank=rank, file=file, names=names), 60.0)
    noted = json.loads(Path(file).read_text())
    assert noted == dict(zip(names, [str(rank), "2", "0", "127.0.0.1"], strict=True))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("kill", Outcome.CRASHED, "killed by SIGKILL"),
        ("raise_device_oom", Outcome.OUT_OF_MEMORY, "CUDA out of memory"),
        ("exit_silently", Outcome.CRASHED, "exited with status 3"),
        ("stop", Outcome.TIMED_OUT, "no result after 2 s"),
        ("hang", Outcome.TIMED_OUT, "no result after 2 s"),
    ],
)
def test_fault_of_one_rank_ends_both_and_names_it(rank, fault, outcome, reason, slot, folder):
    spec = trial(fault, rank=rank)
    timeout = 2.0 if outcome is Outcome.TIMED_OUT else 60.0
    record = slot.run(replace(spec, choices={**spec.choices, "act": "hang"}), timeout)
    still = " (it is stopped)" if fault == "stop" else ""
    assert (record.outcome, record.phase) == (outcome, "model")
    assert record.reason.startswith(f"rank {rank}{still}: ")
    assert reason in record.reason
    assert slot.run(trial(), 60.0).outcome is Outcome.OK
    # Only the child that is forked ahead is left.
    idle_child(slot.parent_pid)
    (own,) = folder.iterdir()
    assert [file.name.partition("-")[0] for file in own.iterdir()] == ["child"]
