"""Which earlier records a sweep keeps, and what it does with the others."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.record import TrialRecord, with_provenance
from jobs.spec import FollowUp, Purpose, TrialSpec
from orchestrator.running.earlier_records import EarlierRecords, refuse_without_gpu, sort_earlier
from orchestrator.running.nodes import Cluster, NoSuchGpuError
from orchestrator.search.several import for_gpu_model
from orchestrator.storage.run_folder import RunFolder
from orchestrator.storage.run_metadata import read_run
from tests.conftest import build_tiny_spec
from tests.support.fake_ray import node_of
from tests.support.records import ended

PLAN = [build_tiny_spec(repeat=number) for number in range(4)]
SLOTS = {"A100": 1, "H200": 3}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    with folder.locked():
        return folder


def measured(spec: TrialSpec, gpu_model: str) -> TrialRecord:
    return ended(spec, environment={"gpu_model": gpu_model})


def sorted_for(
    folder: RunFolder, trials: Collection[TrialSpec], hardware: Mapping[str, str] | None = None
) -> EarlierRecords:
    ids = {spec.trial_id for spec in trials}
    return sort_earlier(folder, lambda spec: spec.trial_id in ids, hardware=hardware)


def files_of(path: Path) -> dict[str, bytes]:
    """The records below a folder: name -> content."""
    return {file.name: file.read_bytes() for file in sorted((path / "records").glob("*.json"))}


def test_records_of_other_trials_move_aside_and_are_counted(folder):
    for spec in PLAN[:2]:
        folder.write(measured(spec, "H200"))
    (folder.path / "trials.parquet").write_bytes(b"rows of both")
    before = files_of(folder.path)
    earlier = sorted_for(folder, PLAN[1:])
    assert (Path(earlier.moved_to) / "trials.parquet").is_file()
    assert set(earlier.wanted) == set(folder.records()) == {PLAN[1].trial_id}
    moved = files_of(Path(earlier.moved_to))
    assert moved == {f"{PLAN[0].trial_id}.json": before[f"{PLAN[0].trial_id}.json"]}
    moved_to = f"moved to {earlier.moved_to}, not deleted"
    assert list(earlier.sentences()) == [f"1 earlier record of another plan: {moved_to}"]


def test_fresh_sweep_moves_every_record_log_and_table_aside(folder):
    folder.describe({"name": "the earlier run"})
    record = with_provenance(measured(PLAN[0], "H200"), log="what it printed")
    folder.write(record)
    (folder.path / "trials.parquet").write_bytes(b"its table")
    earlier = sort_earlier(folder, lambda spec: True, fresh=True)
    assert earlier.wanted == folder.records() == {}
    aside = Path(earlier.moved_to)
    assert aside.parent == folder.path / "superseded"
    assert set(RunFolder(aside).records()) == {PLAN[0].trial_id}
    assert read_run(aside).name == "the earlier run"
    assert (aside / "logs" / f"{PLAN[0].trial_id}.txt").read_text() == "what it printed"
    assert (aside / "trials.parquet").read_bytes() == b"its table"
    assert not (folder.path / "trials.parquet").exists()
    moved_to = f"moved to {earlier.moved_to}, not deleted"
    assert list(earlier.sentences()) == [f"1 earlier record: {moved_to}"]


def test_tables_whose_records_are_gone_move_aside(folder):
    (folder.path / "trials.parquet").write_bytes(b"all that is left")
    earlier = sort_earlier(folder, lambda spec: True)
    assert (Path(earlier.moved_to) / "trials.parquet").read_bytes() == b"all that is left"
    (sentence,) = earlier.sentences()
    assert sentence.startswith("1 table of rows whose records are gone: moved to")


def test_new_measurement_moves_the_finished_one_aside(folder):
    for _ in range(2):
        folder.write(measured(PLAN[0], "H200"))
    assert folder.superseded.path is None, "the same record was written again"
    folder.write(with_provenance(measured(PLAN[0], "H200"), started_at=2.0))
    folder.write(with_provenance(measured(PLAN[0], "H200"), started_at=3.0))
    assert folder.records()[PLAN[0].trial_id].started_at == 3.0
    assert len(files_of(folder.superseded.path)) == 2, "none takes another's place there either"


def test_newer_versions_record_is_never_overwritten(folder):
    path = folder.path / "records" / f"{PLAN[0].trial_id}.json"
    path.write_text('{"schema_version": 999}')
    folder.write(measured(PLAN[0], "H200"))
    kept = folder.superseded.path / "records" / path.name
    assert kept.read_text() == '{"schema_version": 999}'


@pytest.mark.parametrize("content", ['{"schema_version": 999}', '{"name": "cut in ha'])
def test_run_json_that_cannot_be_read_is_kept(content, folder):
    (folder.path / "run.json").write_text(content)
    folder.describe({"name": "x", "finished": False})
    folder.describe({"name": "x", "finished": True})
    (kept,) = (folder.path / "superseded").glob("*/run.json")
    assert kept.read_text() == content
    assert read_run(folder.path).name == "x"


NO_GPU = Cluster(nodes=(node_of(""),))


def test_run_of_gpu_rows_is_refused_without_a_gpu(folder):
    for spec in PLAN[:2]:
        folder.write(measured(spec, "H200"))
    before = files_of(folder.path)
    with pytest.raises(NoSuchGpuError, match="2 rows measured on H200, and no GPU is seen"):
        refuse_without_gpu(folder, NO_GPU, fresh=False)
    assert files_of(folder.path) == before
    refuse_without_gpu(folder, NO_GPU, fresh=True)


def test_run_of_cpu_rows_goes_on_without_a_gpu(folder):
    folder.write(measured(PLAN[0], ""))
    refuse_without_gpu(folder, NO_GPU, fresh=False)


def test_batch_size_run_of_several_models_is_refused_without_a_gpu(folder):
    below = RunFolder(folder.path / "H200")
    with below.locked():
        below.write(measured(PLAN[0], "H200"))
    with pytest.raises(NoSuchGpuError):
        refuse_without_gpu(folder, NO_GPU, fresh=False)


def planned_on(gpu_models: Collection[str]) -> list[TrialSpec]:
    return [spec for model in gpu_models for spec in for_gpu_model(PLAN, model)]


@pytest.mark.parametrize("gpu_model", ["H200", "A100"])
def test_table_of_rows_that_all_stay_is_left_alone(gpu_model, folder):
    (spec,) = for_gpu_model(PLAN[:1], gpu_model)
    folder.write(measured(spec, gpu_model))
    (folder.path / "trials.parquet").write_bytes(b"its table")
    earlier = sorted_for(folder, PLAN, {"": "H200"})
    assert (len(earlier.wanted), len(earlier.of_absent_models)) in {(1, 0), (0, 1)}
    assert (folder.path / "trials.parquet").is_file()


def test_rows_of_a_model_that_left_stay_beside_the_others(folder):
    for spec in planned_on(SLOTS):
        folder.write(measured(spec, spec.gpu_model))
    earlier = sorted_for(folder, PLAN, {"": "H200"})
    assert set(earlier.wanted) == {spec.trial_id for spec in PLAN}
    assert {record.environment["gpu_model"] for record in earlier.wanted.values()} == {"H200"}
    kept = Counter(record.environment["gpu_model"] for record in folder.records().values())
    assert kept == {"A100": len(PLAN), "H200": len(PLAN)}
    assert list(earlier.sentences()) == [
        "4 records of A100 stay in the run: no such GPU is there today"
    ]


def test_rows_of_two_models_do_not_collapse_onto_one(folder):
    """Measured where there was one model, then the same command where there is another."""
    for spec in PLAN:
        folder.write(measured(spec, "H200"))
    earlier = sorted_for(folder, PLAN, {"": "A100"})
    assert earlier.wanted == {}
    assert earlier.of_absent_models == {"H200": len(PLAN)}
    for spec in PLAN:
        folder.write(with_provenance(measured(spec, "A100"), started_at=2.0))
    kept = Counter(record.environment["gpu_model"] for record in folder.records().values())
    assert kept == {"A100": len(PLAN), "H200": len(PLAN)}
    back = sorted_for(folder, PLAN, {"": "H200"})
    assert {record.environment["gpu_model"] for record in back.wanted.values()} == {"H200"}
    assert back.of_absent_models == {"A100": len(PLAN)}
    assert folder.superseded.path is None


def test_follow_up_follows_its_renamed_trial(folder):
    follow_up = FollowUp(follows_trial=PLAN[0].trial_id, purpose=Purpose.PROFILE)
    profile = replace(PLAN[0], follow_up=follow_up)
    folder.write(measured(PLAN[0], "H200"))
    folder.write(measured(profile, "H200"))
    plan = planned_on(SLOTS)
    ids = {spec.trial_id for spec in plan}

    def is_wanted(spec: TrialSpec) -> bool:
        if spec.follow_up is not None:
            return spec.follow_up.follows_trial in ids
        return spec.trial_id in ids

    earlier = sort_earlier(folder, is_wanted, hardware={model: model for model in SLOTS})
    assert earlier.superseded == 0
    followed = {record.spec.follow_up is None: trial for trial, record in earlier.wanted.items()}
    kept = earlier.wanted[followed[False]].spec.follow_up
    assert kept.follows_trial == followed[True]
