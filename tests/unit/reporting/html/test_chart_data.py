"""The data of the page's script: every configuration once, in every column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome, TrialRecord
from jobs.spec import FollowUp, MemoryCap, Purpose
from orchestrator.analysis.dataset import load_dataset
from orchestrator.reporting.html.chart_data import chart_data
from orchestrator.reporting.html.page import left_out, shown_configurations
from tests.support.records import H200, make_anatomy, make_grid, make_record, write_run


def data_of(folder: Path, records: list[TrialRecord]) -> dict[str, Any]:
    dataset = load_dataset(write_run(folder, records))
    return chart_data(dataset, shown_configurations(dataset))


def test_chart_data_holds_every_configuration_of_every_environment(tmp_path: Path) -> None:
    other = {**H200, "gpu_model": "Another GPU"}
    choices = {"precision": "fp32", "activations": "keep", "optimizer": "sgd"}
    records = [*make_grid(), make_record(environment=other, **choices)]
    data = data_of(tmp_path, records)
    columns = data["columns"]
    assert [columns["environment"].count(place) for place in (0, 1)] == [280, 1]
    assert {len(column) for column in columns.values() if isinstance(column, list)} <= {281, 4}
    names = ["micro_batch", "precision", "activations", "optimizer", "recipe", "hardware"]
    assert [encoding["name"] for encoding in data["encodings"]] == names
    assert data["encodings"][0]["values"] == [str(2**power) for power in range(9)]
    assert [measure["name"] for measure in data["measures"]] == [
        "memory_bytes",
        "samples_per_second",
        "dollars_per_million",
    ]


def test_many_numbers_share_colours_in_bands(tmp_path: Path) -> None:
    records = [make_record(micro_batch=size, memory_mib=size) for size in range(1, 29)]
    encoding = data_of(tmp_path, records)["encodings"][0]
    assert encoding["of"] == sorted(encoding["of"])
    assert encoding["names"][0] == "1 to 4"
    assert len(encoding["names"]) == len(encoding["colours"]) == 1 + encoding["of"][-1]


def test_chart_data_names_recipes_and_the_ranked_one(tmp_path: Path) -> None:
    data = data_of(tmp_path, make_grid())
    (environment,) = data["environments"]
    assert environment["recipes"][environment["ranked"]] == "the baseline's recipe"
    assert set(environment["recipes"]) == {
        "the baseline's recipe",
        *(f"optimizer={name}" for name in ("sgd", "adafactor", "adamw_bnb_8bit")),
    }


def test_chart_data_holds_flags_and_cap_checks(tmp_path: Path) -> None:
    record = make_record(flags=[Flag(FlagKind.UNSTABLE, 0.1)])
    cap = MemoryCap(device_bytes=2**31)
    follow_up = FollowUp(follows_trial=record.trial_id, purpose=Purpose.CAP_CHECK)
    spec = replace(
        record.spec, measure=replace(record.spec.measure, memory_cap=cap), follow_up=follow_up
    )
    check = replace(record, spec=spec, outcome=Outcome.OUT_OF_MEMORY, measurements={}, steps={})
    data = data_of(tmp_path, [record, check])
    assert data["columns"]["capChecks"] == [[[2**31, 0, None, None]]]
    flags = data["columns"]["flags"]
    assert flags["of"][flags["at"][0]] == ["unstable: step time 95 % CI ±10 %"]


def test_chart_data_holds_the_anatomy_of_a_follow_up(tmp_path: Path) -> None:
    record = make_record(micro_batch=8, speed=80.0)
    follow_up = FollowUp(follows_trial=record.trial_id, purpose=Purpose.PROFILE)
    profile = replace(
        record, spec=replace(record.spec, follow_up=follow_up), anatomy=make_anatomy(2.0)
    )
    data = data_of(tmp_path, [record, profile])
    assert data["anatomies"]["0"]["timeline"]["mib"]["saved activations"] == [0, 1200, 0]


def test_shown_configurations_keep_fronts_and_an_even_choice(tmp_path: Path) -> None:
    dataset = load_dataset(write_run(tmp_path, make_grid()))
    shown = shown_configurations(dataset, limit=40)
    (kept,) = shown.values()
    assert 40 < len(kept) < 280
    assert set(map(id, dataset.main.front)) <= set(map(id, kept))
    (sentence,) = left_out(dataset, shown)
    assert f"Map and table show {len(kept)} of 280 configurations" in sentence
    assert left_out(dataset, shown_configurations(dataset)) == []
