"""The tables: types, units and readers. Every outcome is a row; what was not measured is null."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from pyarrow import parquet

from jobs.flags import Flag, FlagKind
from jobs.record import Column, Outcome
from orchestrator.api import load
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.columns import axis_columns, declared_columns, trial_table_columns
from orchestrator.storage.tables.parquet import ARROW_TYPES, arrow_table, steps_table, write
from orchestrator.storage.tables.table_reader import read_trials_file
from orchestrator.storage.tables.trial_table import TrialTable, table_of_records
from tests.support.records import COLUMNS, make_grid, make_record


def table(*records, run: RunMetadata | None = None) -> TrialTable:
    return table_of_records(records, run, COLUMNS)


def test_table_has_a_row_for_every_outcome_with_nulls_for_what_was_not_measured():
    records = [make_record(outcome=outcome, reason="because", micro_batch=2) for outcome in Outcome]
    rows = arrow_table(table(*records)).to_pylist()
    assert [row["outcome"] for row in rows] == [outcome.value for outcome in Outcome]
    for row in rows[1:]:
        assert row["reason"] == "because"
        assert all(row[column.name] is None for column in COLUMNS)
    assert rows[-1]["outcome"] == "skipped"
    assert rows[-1]["started_at"] is None


def test_table_carries_units_and_the_run_in_its_metadata():
    run = RunMetadata(config={"model": {"architecture": "bert"}}, budgets=(2**30,))
    trials = arrow_table(table(make_record(precision="bf16"), run=run))
    field = trials.schema.field("peak_allocated_bytes")
    assert field.type == pa.int64()
    assert field.metadata[b"unit"] == b"bytes"
    assert field.metadata[b"doc"]
    metadata = trials.schema.metadata
    assert RunMetadata.from_json(json.loads(metadata[b"run"])).budgets == run.budgets
    assert json.loads(metadata[b"config"]) == {"model": {"architecture": "bert"}}
    environments = json.loads(metadata[b"environments"])
    assert environments[trials["environment_id"][0].as_py()]["torch"] == "2.13.0"
    assert metadata[b"schema_version"] == b"2"


def test_axis_columns_are_typed_by_their_technique_or_their_values():
    records = [
        make_record(precision="bf16", learning_rate=rate, tf32=True, name=name)
        for rate, name in ((1, 3), (0.5, "x"))
    ]
    types = {axis: column.type for axis, column in axis_columns(records).items()}
    assert types == {
        "micro_batch": "int64",
        "accumulation": "int64",
        "precision": "string",
        "learning_rate": "float64",
        "tf32": "bool",
        "name": "string",
    }
    trials = table(*records)
    assert arrow_table(trials)["name"].to_pylist() == ["3", "x"]
    assert trials.axes == {axis: axis for axis in types}


def test_axis_column_named_as_a_measurement_gets_its_own_name():
    trials = table(make_record(warmup_steps=7))
    assert trials.axes["warmup_steps"] == "argument_warmup_steps"
    assert trials.rows[0]["argument_warmup_steps"] == 7
    assert trials.rows[0]["warmup_steps"] == 1


def test_table_row_of_a_batch_that_does_not_divide_has_no_accumulation():
    record = make_record(micro_batch=3, accumulation=2.6667, outcome=Outcome.UNSUPPORTED)
    (row,) = table(record).rows
    assert (row["accumulation"], row["effective_batch"]) == (None, 8)


def test_columns_are_unique_and_of_known_types():
    names = [column.name for column in trial_table_columns(make_grid(), declared_columns())]
    assert len(names) == len(set(names))
    assert {column.type for column in trial_table_columns()} <= set(ARROW_TYPES)


def test_arrow_table_refuses_a_value_of_another_type():
    record = make_record(measurements={"x": "far"})
    with pytest.raises(pa.ArrowInvalid):
        arrow_table(table_of_records([record], declared=[Column("x", "int64", "")]))


def test_steps_table_marks_warm_up():
    record = make_record()
    rows = steps_table([record, make_record(outcome=Outcome.FAILED)]).to_pylist()
    assert [row["counted"] for row in rows] == [False, True, True]
    assert [row["loss"] for row in rows] == [3.0, 2.0, 1.0]
    assert {row["trial_id"] for row in rows} == {record.trial_id}
    assert rows[0]["device_seconds"] is None


def test_trials_parquet_read_back_is_the_table_written(tmp_path):
    trials = table(*make_grid()[:20], run=RunMetadata(name="r", budgets=(1,)))
    again = read_trials_file(write(arrow_table(trials), tmp_path / "trials.parquet"))
    assert again.axes == trials.axes
    assert again.run.budgets == (1,)
    for before, after in zip(trials.rows, again.rows, strict=True):
        assert {**after, **before, "started_at": None} == {**after, "started_at": None}


@pytest.mark.parametrize(
    ("axis", "value", "missing"), [("weight_decay", 0.1, None), ("loss", "chunked", "plain")]
)
def test_table_has_none_or_the_default_where_a_record_lacks_an_axis(axis, value, missing):
    trials = table(make_record(**{axis: value}), make_record(micro_batch=8))
    assert [row[axis] for row in trials.rows] == [value, missing]


def test_a_table_is_read_from_the_file_that_was_opened(tmp_path, monkeypatch):
    def replaced_first(source: object, **options: object) -> pa.Table:
        # A running sweep puts its next table in place of the one that a reader has just opened.
        (tmp_path / "next").replace(tmp_path / "trials.parquet")
        return read_table(source, **options)

    read_table = parquet.read_table
    write(arrow_table(table(make_record())), tmp_path / "trials.parquet")
    write(arrow_table(table(*make_grid())), tmp_path / "next")
    monkeypatch.setattr(parquet, "read_table", replaced_first)
    assert len(read_trials_file(tmp_path / "trials.parquet").rows) == 1


def test_flags_of_another_version_are_left_out_with_a_note(tmp_path):
    flags = {"flags": ["unstable", "splendid"], "flag_values": [0.1, 2.0]}
    rows = [{**row, **flags} for row in table(make_record()).rows]
    trials = replace(table(make_record()), rows=rows)
    write(arrow_table(trials), tmp_path / "trials.parquet")
    run = load(tmp_path)
    (configuration,) = run.configurations
    assert configuration.flags == (Flag(FlagKind.UNSTABLE, 0.1),)
    assert run.unreadable[0].endswith("does not know are left out: splendid")
