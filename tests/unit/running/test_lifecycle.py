"""Which earlier records a sweep keeps, and what it does with the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord, delivered
from jobs.spec import TrialSpec
from orchestrator.running.lifecycle import wanted_records
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.search.per_gpu_model import for_gpu_model, per_gpu_model
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec

PLAN = [build_tiny_spec(repeat=number) for number in range(4)]
SLOTS = {"A100": 1, "H200": 3}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """An empty run folder."""
    folder = RunFolder(tmp_path)
    with folder.locked():
        return folder


def measured(spec: TrialSpec, gpu_model: str) -> TrialRecord:
    """The record of a trial as measured on a GPU model."""
    environment = {"gpu_model": gpu_model}
    record = TrialRecord(spec=spec, outcome=Outcome.OK, environment=environment)
    return delivered(record, started_at=1.0)


def wanted_of(
    folder: RunFolder, trials: Collection[TrialSpec], hardware: Mapping[str, str] | None = None
) -> dict[str, TrialRecord]:
    """The folder's records of these trials."""
    ids = {spec.trial_id for spec in trials}
    return wanted_records(folder, lambda spec: spec.trial_id in ids, hardware=hardware)


def test_records_of_other_trials_are_removed(folder: RunFolder) -> None:
    for spec in PLAN[:2]:
        folder.write(measured(spec, "H200"))
    assert set(wanted_of(folder, PLAN[1:])) == {PLAN[1].trial_id}
    assert set(folder.records()) == {PLAN[1].trial_id}


def test_fresh_sweep_removes_every_record(folder: RunFolder) -> None:
    folder.write(measured(PLAN[0], "H200"))
    assert wanted_records(folder, lambda spec: True, fresh=True) == {}
    assert folder.records() == {}


def planned_on(gpu_models: Collection[str]) -> list[TrialSpec]:
    """The plan of a sweep over these models."""
    return [spec for model in gpu_models for spec in for_gpu_model(PLAN, model)]


def test_resume_measures_a_new_model_and_repeats_nothing(folder: RunFolder) -> None:
    """The folder has a sweep on H200 alone. Then an A100 joined the cluster."""
    for spec in PLAN:
        folder.write(measured(spec, "H200"))
    earlier = wanted_of(folder, planned_on(SLOTS), {model: model for model in SLOTS})
    searches = {model: Grid(for_gpu_model(PLAN, model)) for model in SLOTS}
    session = Session(per_gpu_model(searches, SLOTS), folder)
    environments = [{"gpu_model": model} for model in SLOTS]
    assert session.reuse(earlier, environments, resume=True) == len(PLAN)
    assert Counter(spec.gpu_model for spec in session.pending) == {"A100": len(PLAN)}


def test_records_are_kept_when_another_model_leaves(folder: RunFolder) -> None:
    for spec in planned_on(SLOTS):
        folder.write(measured(spec, spec.gpu_model))
    kept = wanted_of(folder, PLAN, {"": "H200"})
    assert set(kept) == set(folder.records()) == {spec.trial_id for spec in PLAN}
    assert {record.environment["gpu_model"] for record in kept.values()} == {"H200"}


def test_trial_for_a_gpu_model_has_an_identity_of_its_own() -> None:
    named = replace(PLAN[0], gpu_model="H200")
    assert named.trial_id != PLAN[0].trial_id
    assert replace(named, gpu_model="").trial_id == PLAN[0].trial_id
