"""Version 1 of records and tables is read as today's version; identities map one to one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.flags import Flag, FlagKind, flags_of
from jobs.record import SCHEMA_VERSION, record_to_json
from jobs.spec import Purpose
from jobs.techniques import AXES
from orchestrator.analysis.dataset import Dataset, load_dataset
from orchestrator.export.rebuilt_spec import source_trial
from orchestrator.storage.layout import TRIALS
from orchestrator.storage.migration import (
    RENAMED_COLUMNS,
    training_recipe,
    upgraded_record,
)
from orchestrator.storage.record_reader import find_records, read_record
from orchestrator.storage.run_folder import RunFolder
from orchestrator.storage.run_metadata import read_run
from orchestrator.storage.tables.parquet import arrow_table, write
from orchestrator.storage.tables.rows import Row
from orchestrator.storage.tables.table_reader import read_trials_file
from orchestrator.storage.version_1_identity import version_1_id

ROOT = Path(__file__).parents[3]
VERSION_1 = ROOT / "tests" / "data" / "run_version_1"
RECORDED = sorted(path.parent for path in (ROOT / "docs" / "results").rglob(TRIALS))
every_recorded_run = pytest.mark.parametrize(
    "folder",
    RECORDED,
    ids=[folder.relative_to(ROOT / "docs/results").as_posix() for folder in RECORDED],
)


def test_record_reader_upgrades_every_record_of_version_1() -> None:
    found = find_records(VERSION_1)
    assert found.unreadable == ()
    assert len(found.records) == len(list((VERSION_1 / "records").iterdir()))
    for path, record in found.records:
        old = json.loads(path.read_text())
        assert record.schema_version == SCHEMA_VERSION
        assert record.provenance.slot_seconds == old["wall_seconds"]
        assert record.provenance.slot_pid == old["measurements"]["slot_parent_pid"]
        assert (
            record.measurements["samples_per_second"] == old["measurements"]["samples_per_second"]
        )


def test_upgraded_trials_reproduce_their_old_identity() -> None:
    records = dict(find_records(VERSION_1).records)
    search = {path: r for path, r in records.items() if r.spec.follow_up is None}
    assert {path.stem for path in search} == {version_1_id(r.spec) for r in search.values()}
    assert len({record.trial_id for record in records.values()}) == len(records)


def test_upgraded_follow_ups_name_todays_trials() -> None:
    records = [record for _, record in find_records(VERSION_1).records]
    ids = {record.trial_id for record in records}
    follow_ups = [record.spec.follow_up for record in records if record.spec.follow_up]
    purposes = {follow_up.purpose for follow_up in follow_ups}
    assert purposes == {Purpose.CAP_CHECK, Purpose.TIE_BREAK, Purpose.PROFILE}
    for follow_up in follow_ups:
        assert follow_up.follows_trial in ids
        assert set(follow_up.compared_with) <= ids


def test_run_folder_of_version_1_is_continued_in_place(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "records").mkdir()
    for path in (VERSION_1 / "records").iterdir():
        (tmp_path / "records" / path.name).write_bytes(path.read_bytes())
    records = folder.records()
    for record in records.values():
        folder.write(record)
    names = {path.stem for path in (tmp_path / "records").iterdir()}
    assert names == set(records)  # each under its new name, none twice
    assert RunFolder(tmp_path).records() == records


def test_run_metadata_of_version_1_has_todays_config_keys() -> None:
    config = read_run(VERSION_1).config
    assert config["measure"]["timeout_seconds"] == 60.0
    assert config["cpu_fallback"]["steps"] == 3
    assert "deadline_seconds" not in config["measure"]


@every_recorded_run
def test_recorded_table_has_todays_columns(folder: Path) -> None:
    old = pq.read_table(folder / TRIALS)
    table = read_trials_file(folder / TRIALS)
    assert len(table.rows) == old.num_rows
    unchanged = set(old.column_names) & set(table.rows[0]) - {"purpose"}
    for name in unchanged - {"flags"}:
        assert [row[name] for row in table.rows] == old[name].to_pylist()
    for before, after in RENAMED_COLUMNS.items():
        if before in old.column_names:
            assert [row[after] for row in table.rows] == old[before].to_pylist()


@every_recorded_run
def test_recorded_warnings_are_flags(folder: Path) -> None:
    table = pq.read_table(folder / TRIALS)
    if "warnings" not in table.column_names:
        pytest.skip("written as version 2")
    warnings = table["warnings"].to_pylist()
    rows = read_trials_file(folder / TRIALS).rows
    assert [len(flags_of(row)) for row in rows] == [len(texts or ()) for texts in warnings]


@every_recorded_run
def test_recorded_rows_map_one_to_one_to_todays_trials(folder: Path) -> None:
    """The rebuilt spec of a row has the row's trial_id as its version-1 identity."""
    dataset = load_dataset(folder)
    todays = {}
    for row in dataset.rows:
        if row["started_at"] is None or _is_of_a_removed_technique(dataset, row):
            continue
        source = source_trial(dataset, row)
        assert source.is_checked
        todays[row["trial_id"]] = source.spec.trial_id
    assert len(set(todays.values())) == len(todays) > 0


def _is_of_a_removed_technique(dataset: Dataset, row: Row) -> bool:
    optimizer = row[dataset.axes["optimizer"]]
    return optimizer not in AXES["optimizer"].variants


@every_recorded_run
def test_recorded_table_written_today_reads_the_same(folder: Path, tmp_path: Path) -> None:
    table = read_trials_file(folder / TRIALS)
    path = write(arrow_table(table), tmp_path / TRIALS)
    again = read_trials_file(path)
    columns = [column.name for column in table.columns]
    assert [[row.get(name) for name in columns] for row in again.rows] == [
        [row.get(name) for name in columns] for row in table.rows
    ]
    assert dataclasses.replace(again.run, schema_version=0) == dataclasses.replace(
        table.run, schema_version=0
    )


@pytest.mark.parametrize(
    ("equivalence", "recipe"),
    [
        ("exact", {}),
        ("", {}),
        ("effective_batch=16", {}),
        ("effective_batch=16 · optimizer=sgd", {"optimizer": "sgd"}),
        ("effective_batch=16 · learning_rate=0.001", {"learning_rate": 0.001}),
    ],
)
def test_training_recipe_is_the_equivalence_without_its_batch(
    equivalence: str, recipe: dict[str, Any]
) -> None:
    assert training_recipe(equivalence, {"learning_rate": 0.001, "optimizer": "sgd"}) == recipe


@pytest.mark.parametrize(
    ("warning", "flag"),
    [
        ("unstable: the mean step is known to ±37.7% only", Flag(FlagKind.UNSTABLE, 0.377)),
        ("unstable: a single step counted", Flag(FlagKind.UNSTABLE)),
        ("host-bound: the GPU ran dry after most micro-batches", Flag(FlagKind.HOST_BOUND)),
        (
            "partly host-bound: forward passes that the GPU was done with took 33% of the time",
            Flag(FlagKind.LAUNCH_BOUND, 0.33),
        ),
        (
            "thrashing: the allocator had to flush its cache 3 times",
            Flag(FlagKind.THRASHING, 3),
        ),
        ("shared: 2 other processes were on the GPU", Flag(FlagKind.SHARED_PROCESSES, 2)),
        (
            "shared: 1.5 GiB of the GPU were in use before the trial",
            Flag(FlagKind.SHARED_BEFORE, 1.5 * 2**30),
        ),
        (
            "shared: 2.5 GiB of the GPU were neither the context's nor the allocator's",
            Flag(FlagKind.SHARED_DURING, 2.5 * 2**30),
        ),
        (
            "trains differently: loss 4.0 times its reference's, as is its accumulation: this",
            Flag(FlagKind.LOSS_TIMES_ACCUMULATION, 4.0),
        ),
        (
            "trains differently: loss 1.3 times its reference's",
            Flag(FlagKind.LOSS_MISMATCH, 1.3),
        ),
        (
            "trains differently: loss is nan from step 2 on",
            Flag(FlagKind.LOSS_NOT_FINITE, 2),
        ),
    ],
)
def test_upgraded_record_turns_every_warning_into_a_flag(warning: str, flag: Flag) -> None:
    raw = json.loads(next((VERSION_1 / "records").iterdir()).read_text())
    raw["measurements"]["warnings"] = [warning]
    (upgraded,) = flags_of(upgraded_record(raw)["measurements"])
    assert upgraded.kind is flag.kind
    assert upgraded.value == pytest.approx(flag.value)


def test_a_record_of_a_newer_version_is_not_read(tmp_path: Path) -> None:
    record = find_records(VERSION_1).records[0][1]
    path = tmp_path / "newer.json"
    raw = {**record_to_json(record), "schema_version": SCHEMA_VERSION + 1}
    path.write_text(json.dumps(raw))
    assert read_record(path) is None
    path.write_text(json.dumps({**raw, "schema_version": SCHEMA_VERSION}))
    assert read_record(path) == record
