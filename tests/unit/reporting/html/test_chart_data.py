"""The data of the page's script: configurations, lines by micro-batch, explained pairs."""

from pathlib import Path
from typing import Any

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome, TrialRecord
from jobs.spec import MemoryCap, Purpose
from orchestrator.analysis.dataset import EnvironmentResults, load_dataset
from orchestrator.reporting.html.chart_data import MAX_LINES, batch_lines, chart_data
from orchestrator.reporting.html.decisions import MAX_EXPLAINED, explained_pairs
from orchestrator.reporting.html.page import left_out, shown_configurations
from tests.support.records import H200, follow_up_of, make_grid, make_record, profile_of, write_run


def data_of(folder: Path, records: list[TrialRecord]) -> dict[str, Any]:
    dataset = load_dataset(write_run(folder, records))
    return chart_data(dataset, shown_configurations(dataset))


def test_chart_data_holds_every_configuration_of_every_environment(tmp_path):
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


def test_many_numbers_share_colours_in_bands(tmp_path):
    records = [make_record(micro_batch=size, memory_mib=size) for size in range(1, 29)]
    encoding = data_of(tmp_path, records)["encodings"][0]
    assert encoding["of"] == sorted(encoding["of"])
    assert encoding["names"][0] == "1 to 4"
    assert len(encoding["names"]) == len(encoding["colours"]) == 1 + encoding["of"][-1]


def test_chart_data_holds_flags_and_cap_checks(tmp_path):
    record = make_record(flags=[Flag(FlagKind.UNSTABLE, 0.1)])
    cap = {"memory_cap": MemoryCap(device_bytes=2**31)}
    failed = {"outcome": Outcome.OUT_OF_MEMORY, "measurements": {}, "steps": {}}
    check = follow_up_of(record, Purpose.CAP_CHECK, cap, **failed)
    data = data_of(tmp_path, [record, check])
    assert data["columns"]["capChecks"] == [[[2**31, 0, None, None]]]
    flags = data["columns"]["flags"]
    assert flags["of"][flags["at"][0]] == ["unstable: step time 95 % CI ±10 %"]


def test_chart_data_holds_the_anatomy_of_a_follow_up(tmp_path):
    record = make_record(micro_batch=8, speed=80.0)
    data = data_of(tmp_path, [record, profile_of(record, 2.0)])
    assert data["anatomies"]["0"]["timeline"]["mib"]["saved activations"] == [0, 1200, 0]


def test_shown_configurations_keep_fronts_and_an_even_choice(tmp_path):
    dataset = load_dataset(write_run(tmp_path, make_grid()))
    shown = shown_configurations(dataset, limit=40)
    (kept,) = shown.values()
    assert 40 < len(kept) < 280
    assert set(map(id, dataset.main.front)) <= set(map(id, kept))
    (sentence,) = left_out(dataset, shown)
    assert f"Map and table show {len(kept)} of 280 configurations" in sentence
    assert left_out(dataset, shown_configurations(dataset)) == []


def index_of(results: EnvironmentResults) -> dict[str, int]:
    """Trial id -> number of its configuration on the page."""
    return {own.trial_ids[0]: index for index, own in enumerate(results.configurations)}


def lines(folder: Path, records: list[TrialRecord]) -> list[dict[str, Any]]:
    dataset = load_dataset(write_run(folder, records))
    return batch_lines(dataset, dataset.main, index_of(dataset.main))


def test_batch_lines_rise_by_micro_batch_and_name_the_baseline(tmp_path):
    records = []
    for size in (4, 1, 2):
        for precision, factor in (("fp32", 1.0), ("bf16", 3.0)):
            records.append(
                make_record(micro_batch=size, precision=precision, speed=10.0 * size * factor)
            )
    fastest, baseline = lines(tmp_path, records)
    assert fastest["name"] == "bf16"
    assert fastest["sizes"] == [1, 2, 4]
    assert baseline["name"] == "fp32 (baseline)"
    assert (baseline["best"], baseline["single"]) == (1, 1)


def test_batch_lines_take_the_fastest_split_of_a_micro_batch(tmp_path):
    records = [
        make_record(micro_batch=2, accumulation=1, speed=10.0),
        make_record(micro_batch=2, accumulation=4, speed=15.0),
        make_record(micro_batch=4, accumulation=1, speed=20.0),
    ]
    (line,) = lines(tmp_path / "two", records)
    assert line["sizes"] == [2, 4]
    assert line["speed"] == 20.0
    assert lines(tmp_path / "one", records[2:]) == [], "a single micro-batch is no line"


def test_batch_lines_are_few_and_hold_the_baseline(tmp_path):
    records = []
    for number in range(20):
        for size in (1, 2):
            name = "adamw_torch_fused" if number == 0 else f"optimizer_{number}"
            speed = 10.0 * size + number
            records.append(make_record(micro_batch=size, optimizer=name, speed=speed))
    best = [line for line in lines(tmp_path, records) if line["best"]]
    assert len(best) == MAX_LINES + 1
    assert any(line["name"].endswith("(baseline)") for line in best)


def test_explained_pairs_are_those_of_picks_default_and_front(tmp_path):
    dataset = load_dataset(write_run(tmp_path, make_grid(), budgets=[2**33]))
    results = dataset.main
    numbers = index_of(results)
    pairs = explained_pairs(dataset, numbers)
    assert 0 < len(pairs) <= MAX_EXPLAINED * (MAX_EXPLAINED - 1) / 2
    indices = {int(part) for key in pairs for part in key.split(",")}
    assert numbers[results.budget_picks[0].best.trial_ids[0]] in indices
    for key, text in pairs.items():
        first, second = map(int, key.split(","))
        assert first < second
        assert text.startswith(f"A {results.configurations[first].trial_ids[0]}: ")
        assert f"B {results.configurations[second].trial_ids[0]}: " in text
    assert explained_pairs(dataset, {}) == {}, "rows that the page does not hold"
