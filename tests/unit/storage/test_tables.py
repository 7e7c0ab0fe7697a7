"""The tables: types, units and readers; every outcome is a row; nothing measured is null."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest
from orchestrator.analysis.summary import summarize, table_of_fronts

from jobs.record import Column, Outcome, TrialRecord
from orchestrator.reporting import schema_page
from orchestrator.storage.run_metadata import Run, read_records
from orchestrator.storage.tables import parquet
from orchestrator.storage.tables.columns import axis_columns, columns, declared_columns
from tests.support.records import COLUMNS, make_grid, make_record, write_run

DOCS = Path(__file__).parents[3] / "docs"


def test_every_outcome_is_a_row_and_what_was_not_measured_is_null() -> None:
    records = [make_record(outcome=outcome, reason="because", micro_batch=2) for outcome in Outcome]
    rows = parquet.trials_table(records, COLUMNS).to_pylist()
    assert [row["outcome"] for row in rows] == [outcome.value for outcome in Outcome]
    for row in rows[1:]:
        assert row["reason"] == "because"
        assert {row[column.name] for column in COLUMNS if not column.type.startswith("list")} == {
            None
        }
    assert rows[-1]["outcome"] == "skipped"
    assert rows[-1]["started_at"] is None


def test_fields_carry_units_and_the_schema_carries_the_run() -> None:
    run = Run(
        name="r",
        command="sweep",
        config={"model": "bert"},
        budgets=(2**30,),
        baseline={"precision": "fp32"},
    )
    trials = parquet.trials_table([make_record(precision="bf16")], COLUMNS, run)
    field = trials.schema.field("peak_allocated_bytes")
    assert field.type == pa.int64()
    assert field.metadata[b"unit"] == b"bytes"
    assert field.metadata[b"doc"]
    assert parquet.run_of(trials) == run
    assert json.loads(trials.schema.metadata[b"config"]) == {"model": "bert"}
    environments = parquet.environments_of(trials)
    assert environments[trials["environment_id"][0].as_py()]["torch"] == "2.13.0"
    assert trials.schema.metadata[b"tool_version"]


def test_axes_are_typed_by_their_technique_or_their_values() -> None:
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
    trials = parquet.trials_table(records, COLUMNS)
    assert trials["name"].to_pylist() == ["3", "x"]
    assert parquet.axes_of(trials) == {axis: axis for axis in types}


def test_an_axis_named_as_a_measurement_gets_a_column_of_its_own() -> None:
    trials = parquet.trials_table([make_record(warmup_steps=7)], COLUMNS)
    assert trials["argument_warmup_steps"].to_pylist() == [7]
    assert trials["warmup_steps"].to_pylist() == [1]
    assert parquet.axes_of(trials)["warmup_steps"] == "argument_warmup_steps"


def test_a_batch_that_cannot_be_split_has_no_accumulation() -> None:
    record = make_record(micro_batch=3, accumulation=2.6667, outcome=Outcome.UNSUPPORTED)  # type: ignore[arg-type]
    (row,) = parquet.trials_table([record], COLUMNS).to_pylist()
    assert (row["accumulation"], row["effective_batch"]) == (None, 8)


def test_column_names_are_unique_and_typed() -> None:
    names = [column.name for column in columns(declared_columns(), make_grid())]
    assert len(names) == len(set(names))
    assert {column.type for column in columns(declared_columns())} <= set(parquet.ARROW_TYPES)
    with pytest.raises(pa.ArrowInvalid):
        parquet.trials_table([make_record(measurements={"x": "far"})], [Column("x", "int64", "")])


def test_steps_tell_warm_up_from_counted_ones() -> None:
    record = make_record()
    rows = parquet.steps_table([record, make_record(outcome=Outcome.FAILED)]).to_pylist()
    assert [row["counted"] for row in rows] == [False, True, True]
    assert [row["loss"] for row in rows] == [3.0, 2.0, 1.0]
    assert {row["trial_id"] for row in rows} == {record.trial_id}
    assert rows[0]["device_seconds"] is None


def test_duckdb_polars_and_pandas_read_the_same(tmp_path: Path) -> None:
    path = parquet.write(parquet.trials_table(make_grid(), COLUMNS), tmp_path / "trials.parquet")
    answer = duckdb.sql(
        f"SELECT trial_id FROM '{path}' WHERE outcome = 'ok' ORDER BY samples_per_second DESC, trial_id LIMIT 3"
    ).fetchall()
    by_polars = (
        polars.read_parquet(path)
        .filter(polars.col("outcome") == "ok")
        .sort(["samples_per_second", "trial_id"], descending=[True, False])["trial_id"]
        .head(3)
        .to_list()
    )
    frame = pandas.read_parquet(path)
    ok = frame[frame["outcome"] == "ok"]
    by_pandas = (
        ok.sort_values(["samples_per_second", "trial_id"], ascending=[False, True])["trial_id"]
        .head(3)
        .tolist()
    )
    assert [row[0] for row in answer] == by_polars == by_pandas
    assert [entry.name for entry in tmp_path.iterdir()] == ["trials.parquet"]
    assert parquet.read(path).schema.metadata[b"tool_version"]


def test_torn_and_foreign_files_are_no_records(tmp_path: Path) -> None:
    kept = make_record()
    folder = write_run(tmp_path, [kept])
    whole = next((folder / "records").glob("*.json")).read_text()
    contents = {
        "torn": whole[:100],
        "list": "[]",
        "foreign": '{"spec": {}}',
        "outcome": whole.replace('"ok"', '"fine"'),
    }
    for name, content in contents.items():
        (folder / "records" / f"{name}.json").write_text(content)
    (folder / "records" / "binary.json").write_bytes(b"\xff\xfe\x00")
    assert read_records(folder) == [kept]


def test_the_frontiers_table_tells_its_three_scopes() -> None:
    def row(memory: float, speed: float, batch: int, kind: str) -> TrialRecord:
        return make_record(
            micro_batch=batch,
            memory_mib=memory,
            speed=speed,
            equivalence=f"effective_batch={batch}{kind}",
        )

    sgd = " · optimizer=sgd"
    trials = parquet.trials_table(
        [row(10, 10, 1, ""), row(20, 9, 2, ""), row(5, 15, 1, sgd), row(30, 20, 4, "")], COLUMNS
    )
    summary = summarize(
        trials.to_pylist(), parquet.axes_of(trials), Run(), parquet.environments_of(trials)
    )
    found = parquet.frontier_table(trials, table_of_fronts(summary)).to_pylist()
    told = [
        (r["micro_batch"], r["training"], r["on_frontier"], r["across_trainings"]) for r in found
    ]
    assert sorted(told) == [
        (1, "", True, False),
        (1, "optimizer=sgd", True, True),
        (2, "", False, False),
        (4, "", True, True),
    ]


def test_the_schema_page_is_current() -> None:
    assert (DOCS / "schema.md").read_text() == schema_page.render(), (
        "run: python -m orchestrator.reporting.schema_page > docs/schema.md"
    )
