"""The run folder: atomic records, one driver at a time, damaged and foreign files left alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.record import Outcome, Provenance, TrialRecord, with_provenance
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec


def make(repeat: int = 0, outcome: Outcome = Outcome.OK) -> TrialRecord:
    """A record with a little of everything."""
    return TrialRecord(
        spec=build_tiny_spec(repeat=repeat),
        outcome=outcome,
        measurements={
            "peak_allocated_bytes": 2**40 + 1,
            "samples_per_second": 0.1,
            "flags": ["unstable"],
            "flag_values": [0.25],
        },
        steps={"loss": [1.5, 0.1 + 0.2]},
        environment={"gpu_model": ""},
        provenance=Provenance(started_at=1.25),
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "runs" / "one" / "records").mkdir(parents=True)
    return RunFolder(tmp_path / "runs" / "one")


def names(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in (folder.path / "records").iterdir())


def test_run_folder_keeps_the_last_record_of_a_trial(folder):
    folder.write(make(outcome=Outcome.SKIPPED))
    folder.write(make())
    (record,) = folder.records().values()
    assert record.outcome is Outcome.OK
    assert names(folder) == [f"{record.trial_id}.json"]


def test_records_are_in_the_order_of_their_starts_and_those_of_no_start_come_last(folder):
    starts = (0.0, 3.0, 1.0, 2.0)
    for repeat, started_at in enumerate(starts):
        folder.write(with_provenance(make(repeat), started_at=started_at))
    assert [own.started_at for own in folder.records().values()] == [1.0, 2.0, 3.0, 0.0]


def test_run_folder_lists_unreadable_files_and_leaves_them_alone(folder):
    record = make()
    folder.write(record)
    whole = (folder.path / "records" / f"{record.trial_id}.json").read_bytes()
    strangers = {
        "binary.json": b"\xff\xfe\x00",
        "empty.json": b"",
        "foreign.json": b'{"somebody": "else\'s"}',
        "list.json": b"[1, 2]",
        "number.json": b"7",
        "cut.json": whole[: len(whole) // 2],
        "unknown_outcome.json": whole.replace(b'"ok"', b'"splendid"'),
        "unknown_flag.json": whole.replace(b'["unstable"]', b'["splendid"]'),
        "unknown_field.json": json.dumps({**json.loads(whole), "mood": "good"}).encode(),
    }
    for name, content in strangers.items():
        (folder.path / "records" / name).write_bytes(content)
    assert list(folder.records()) == [record.trial_id]
    assert [path.name for path in folder.unreadable] == sorted(strangers)
    assert {path.name: path.read_bytes() for path in folder.unreadable} == strangers


@pytest.mark.parametrize("name", ["per_device_train_batch_size", "gradient_accumulation_steps"])
@pytest.mark.parametrize(
    ("size", "fits"), [(1, True), (2**31 - 1, True), (2**31, False), (0, False), (1.5, False)]
)
def test_record_whose_batch_fits_no_table_is_unreadable(name, size, fits, folder):
    record = make()
    arguments = {**record.spec.settings.training_arguments, name: size}
    settings = replace(record.spec.settings, training_arguments=arguments)
    folder.write(replace(record, spec=replace(record.spec, settings=settings)))
    assert len(folder.records()) == fits
    assert len(folder.unreadable) == (not fits)


def test_record_of_an_impossible_clock_is_unreadable(folder):
    folder.write(with_provenance(make(), started_at=4.2e9))
    assert not folder.records()


def test_run_folder_write_that_is_killed_leaves_the_old_record(folder, monkeypatch):
    old = make()
    folder.write(old)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.write(make(outcome=Outcome.SKIPPED))
    assert folder.records() == {old.trial_id: old}
    assert folder.unreadable == []


@pytest.mark.parametrize(
    ("outcome", "kept"), [(Outcome.OK, ""), (Outcome.FAILED, "end"), (Outcome.UNSUPPORTED, "")]
)
def test_run_folder_keeps_the_log_of_what_did_not_end_well(outcome, kept, folder):
    record = folder.write(with_provenance(make(outcome=outcome), log="x" * 5000 + "end"))
    assert record.provenance.log[-3:] == kept
    assert len(record.provenance.log) <= 4000
    assert record.provenance.log_file == f"logs/{record.trial_id}.txt"
    assert (folder.path / record.provenance.log_file).read_text() == "x" * 5000 + "end"
    assert folder.records() == {record.trial_id: record}


def test_new_folder_is_removed_if_nothing_was_written(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "new")
    with folder.locked():
        assert folder.path.exists()
    assert not folder.path.exists()
    with folder.locked():
        folder.write(make())
    assert len(folder.records()) == 1


def test_new_folder_stays_with_any_file_of_the_run(tmp_path):
    folder = RunFolder(tmp_path / "new")
    with folder.locked():
        (folder.path / "log.jsonl").touch()
    assert (folder.path / "log.jsonl").exists()
