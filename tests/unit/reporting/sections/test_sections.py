"""What each section says of a run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome, skipped, with_provenance
from orchestrator.analysis.dataset import Dataset, EnvironmentResults, load_dataset
from orchestrator.analysis.published_guide import guide, published
from orchestrator.reporting.content import Content
from orchestrator.reporting.sections import (
    budgets,
    cumulative,
    effects,
    environment,
    failures,
    hf_guide,
    one_time_costs,
    pareto_front,
    search_summary,
    warnings,
)
from orchestrator.storage.search_summary import SearchSummary
from tests.support.records import GUIDE_CONFIG, make_grid, make_guide, make_record, write_run

GIB = 2**30


def loaded(folder: Path, records: list[Any], **run: Any) -> tuple[Dataset, EnvironmentResults]:
    dataset = load_dataset(write_run(folder, records, **run))
    return dataset, dataset.main


def texts(content: Content) -> list[list[str]]:
    (table,) = content.tables
    return [[column.text(row) for column in table.shown_columns] for row in table.rows]


def test_pareto_front_ranks_the_baselines_recipe_and_counts_others(tmp_path):
    content = pareto_front.make(*loaded(tmp_path, make_grid()))
    rows = content.tables[0].rows
    assert {row["choices"]["optimizer"] for row in rows} == {"adamw_torch_fused"}
    assert (
        "Ranked: same training recipe as the baseline, any batch size. 3 other training recipes "
        "(†) listed separately."
    ) in content.text
    assert not content.notes


def test_pareto_front_without_the_baselines_recipe_names_the_ranked_one(tmp_path):
    sgd = make_record(optimizer="sgd", recipe={"optimizer": "sgd"})
    failed = make_record(optimizer="adamw_torch_fused", outcome=Outcome.OUT_OF_MEMORY)
    content = pareto_front.make(*loaded(tmp_path, [sgd, failed]))
    ranked = "Ranked: optimizer=sgd, because no trial of the baseline's recipe ended ok."
    assert ranked in content.text


def test_pareto_front_marks_speeds_of_the_host(tmp_path):
    dataset, results = loaded(tmp_path, [make_record(speed=50.0)])
    own = replace(results.configurations[0], flags=(Flag(FlagKind.HOST_BOUND, 2.0),))
    content = pareto_front.make(dataset, replace(results, configurations=(own,)))
    assert "h 50.0" in texts(content)[0]
    assert content.notes[0].startswith("h ")


def test_budgets_show_a_faster_recipe_behind_the_best(tmp_path):
    content = budgets.make(*loaded(tmp_path, make_grid(), budgets=[GIB, 8 * GIB]))
    rows = content.tables[0].rows
    assert [(row["budget_bytes"] // GIB, row["role"]) for row in rows] == [
        (1, "best"),
        (8, "best"),
        (8, "other recipe"),
    ]
    assert rows[0]["configuration"] == "nothing measured fits"
    assert rows[2]["samples_per_second"] > rows[1]["samples_per_second"]
    assert "† other training recipe: optimizer=sgd" in content.notes
    assert any("verified under a memory cap" in note for note in content.notes)


def test_hf_guide_table_stands_beside_published_figures(tmp_path):
    content = hf_guide.make(*loaded(tmp_path, make_guide(), config=GUIDE_CONFIG))
    rows = texts(content)
    assert rows[0][1:] == [
        *("17.6", "29.0", "9,751"),
        *("34.0", "7,200", "7,264", "7,800"),
        *("57.82", "8.86", "14,949"),
    ]
    assert [row[-1] for row in rows[9:]] == ["5,363", "5,363", ""]
    assert "h host-bound" in content.notes[1]


@pytest.mark.parametrize(
    ("change", "has_table", "has_published"),
    [
        ({}, True, True),
        ({"measure": {"steps": 10}}, False, False),
        ({"data": {"synthetic": {"sequence_length": 128, "samples": 512}}}, True, False),
        ({"model": {"architecture": "llama"}}, True, False),
    ],
)
def test_hf_guide_shows_published_figures_of_its_own_experiment_only(
    tmp_path, change, has_table, has_published
):
    dataset, results = loaded(tmp_path, make_guide(), config={**GUIDE_CONFIG, **change})
    content = hf_guide.make(dataset, results)
    assert (content is not None) is has_table
    if content is not None:
        keys = {column.key for column in content.tables[0].shown_columns}
        assert ("published_seconds" in keys) is has_published


def test_effects_and_cumulative_say_what_changes_the_training(tmp_path):
    baseline = {"micro_batch": 4, "precision": "fp32"}
    run = loaded(tmp_path, make_grid(), baseline=baseline)
    content = effects.make(*run)
    training = {row["axis"]: row["training"] for row in content.tables[0].rows}
    assert training == {
        "micro_batch": "other batch",
        "precision": "same",
        "activations": "same",
        "optimizer": "other recipe",
    }
    steps = cumulative.make(*run)
    assert [row["added"] for row in steps.tables[0].rows][:2] == [
        "baseline",
        "activations checkpoint",
    ]
    assert steps.tables[0].rows[-1]["marks"] == ["†"]


def test_environment_lists_what_is_known(tmp_path):
    environment_of = {"gpu_model": "X", "gpu_memory_bytes": 3 * GIB, "driver": ""}
    content = environment.make(*loaded(tmp_path, [make_record(environment=environment_of)]))
    assert texts(content) == [["gpu_memory_bytes", "3 GiB"], ["gpu_model", "X"]]


def test_failures_show_one_row_for_each_rule(tmp_path):
    reasons = ("at least 4.20 GiB", "at least 5.10 GiB", "at least 6 GiB")
    records = [
        replace(make_record(micro_batch=place), outcome=Outcome.SKIPPED, rule="dominated")
        for place in (1, 2, 3)
    ]
    records = [
        replace(record, reason=reason) for record, reason in zip(records, reasons, strict=True)
    ]
    oom = [
        make_record(micro_batch=n, outcome=Outcome.OUT_OF_MEMORY, reason=f"tried {n}.00 GiB")
        for n in (16, 32)
    ]
    broken = make_record(micro_batch=64, outcome=Outcome.CRASHED, reason="SIGSEGV")
    dataset, _ = loaded(tmp_path, [make_record(), *records, broken, *oom])
    content = failures.make(dataset)
    rows = content.tables[0].rows
    assert [(row["count"], row["outcome"], row["rule"]) for row in rows] == [
        (2, "out_of_memory", ""),
        (1, "crashed", ""),
        (3, "skipped", "dominated"),
    ]
    assert rows[2]["reason"] in reasons
    assert {trial["configuration"] for trial in rows[2]["trials"]} == {
        f"batch {n}" for n in (1, 2, 3)
    }


@pytest.mark.parametrize(
    ("name", "is_linked"),
    [("logs/abc123.txt", True), ("../../etc/passwd", False), ("logs/a.txt/../b", False)],
)
def test_failures_link_only_the_runs_own_logs(name, is_linked, tmp_path):
    failed = with_provenance(make_record(outcome=Outcome.FAILED, reason="no"), log_file=name)
    content = failures.make(load_dataset(write_run(tmp_path, [failed])))
    assert ("log_file" in content.tables[0].rows[0]["trials"][0]) is is_linked


def test_warnings_group_the_flags_of_all_trials(tmp_path):
    flags = [Flag(FlagKind.UNSTABLE, value) for value in (0.02, 0.3)]
    records = [make_record(micro_batch=n, flags=[flag]) for n, flag in enumerate(flags, 1)]
    content = warnings.make(load_dataset(write_run(tmp_path, records)))
    assert texts(content) == [
        ["2", "unstable", "step time 95 % CI ±2.0 % to ±30 %", "batch 1 and 1 other"]
    ]


def test_one_time_costs_list_each_node(tmp_path):
    costs = {"node-1": {"preload": 12.0, "build": "cached"}}
    content = one_time_costs.make(loaded(tmp_path, [make_record()], one_time_costs=costs)[0])
    assert texts(content) == [["node-1", "preload", "12.0 s"], ["node-1", "build", "cached"]]


SEARCH: dict[str, Any] = {
    "kind": "frontier",
    "planned": 288,
    "measured": 105,
    "skipped": {"dominated": 140, "out_of_memory_below": 43},
    "audit": {
        "audited": 12,
        "contradicted": 1,
        "tolerance": 0.02,
        "memory_error": {"median": 0.001, "largest": 0.004},
        "speed_error": None,
    },
}


def test_search_summary_states_cost_and_audit():
    summary, audit = search_summary.search_sentences(SearchSummary(**SEARCH))
    assert summary == (
        "Search (frontier): 105 of 288 trials measured, 183 skipped (140 dominated, 43 "
        "larger than one that ran out of memory)."
    )
    assert audit.startswith("Audit: 12 configurations that it would have skipped")
    assert "1 is beyond the Pareto front by more than 2 %" in audit
    assert audit.endswith("memory prediction off by 0.1 % (median), 0.4 % at most.")


def test_search_summary_without_audit_says_the_error_is_unknown():
    _, audit = search_summary.search_sentences(SearchSummary(**{**SEARCH, "audit": {"audited": 0}}))
    assert "error is unknown" in audit
    assert list(search_summary.search_sentences(None)) == []


def test_search_summary_says_how_far_an_unfinished_run_is(tmp_path):
    spec = make_record(micro_batch=8).spec
    records = [make_record(), skipped(spec, "time_budget", "the time budget ended")]
    run = {"finished": False, "planned": 9, "notes": ["One GPU is unfit."]}
    content = search_summary.make(load_dataset(write_run(tmp_path, records, **run)))
    assert content.text == (
        "Unfinished run: 2 of 9 trials so far, so every figure may still change.",
        "One GPU is unfit.",
    )
    assert search_summary.make(load_dataset(write_run(tmp_path, records))) is None


def test_search_summary_of_missing_follow_ups_does_not_call_trials_missing(tmp_path):
    run = {"finished": False, "planned": 1}
    content = search_summary.make(load_dataset(write_run(tmp_path, [make_record()], **run)))
    expected = "Unfinished run: 1 trial ended, but not all follow-ups; a pick may still change."
    assert content.text == (expected,)


def test_published_figures_need_every_choice_to_be_the_guides():
    lean = {"micro_batch": 1, "accumulation": 4, "activations": "checkpoint", "precision": "fp16"}
    row = published({**lean, "optimizer": "adafactor"})
    assert (row.seconds, row.samples_per_second, row.memory_mib) == (56.54, 9.06, 4847)
    assert published({"micro_batch": 4, "precision": "bf16"}) is None
    assert published({"micro_batch": 4, "attention": "eager"}) is None
    assert published({"micro_batch": 4, "learning_rate": 1e-3}) is None


def test_published_figures_are_found_for_optimizers_that_stand_for_another():
    assert published({"micro_batch": 4, "optimizer": "adamw_torch"}) == guide().rows[0]
    assert [row for row in guide().rows if published(row.choices) is not row] == []
