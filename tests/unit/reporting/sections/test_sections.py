"""What each section says of a run."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome, TrialRecord, skipped, with_provenance
from orchestrator.analysis.dataset import Dataset, EnvironmentResults, load_dataset
from orchestrator.reporting import markdown
from orchestrator.reporting.report import Report
from orchestrator.reporting.sections import (
    failed_trials,
    hf_guide,
    pareto_front,
    search_outcome,
    way,
)
from orchestrator.reporting.sections.hf_guide import guide, published
from orchestrator.storage.search_summary import SearchSummary
from orchestrator.units import GIB
from tests.support.commands import ROOT
from tests.support.golden import assert_golden, without_ids
from tests.support.records import GUIDE_CONFIG, H200, make_guide, make_record, write_run


def loaded(folder: Path, records: list[Any], **run: Any) -> tuple[Dataset, EnvironmentResults]:
    dataset = load_dataset(write_run(folder, records, **run))
    return dataset, dataset.main


PLAIN = {
    "precision": "fp32",
    "activations": "keep",
    "loop": "trainer",
    "optimizer": "adamw_torch_fused",
}
SEARCH = {
    "kind": "frontier",
    "planned": 288,
    "measured": 105,
    "skipped": {"dominated": 140, "out_of_memory_below": 43},
    "audit": {
        "audited": 12,
        "contradicted": 1,
        "tolerance": 0.02,
        "speed_error": None,
        "memory_error": {"median": 0.001, "largest": 0.004},
    },
}


def ended(size: int, outcome: Outcome, reason: str, rule: str = "") -> TrialRecord:
    return make_record(micro_batch=size, outcome=outcome, reason=reason, rule=rule, **PLAIN)


def test_report_of_a_run_with_everything_is_the_recorded_text(tmp_path):
    records = [
        *make_guide(),
        *(ended(n, Outcome.OUT_OF_MEMORY, f"tried {n}.00 GiB") for n in (16, 32)),
        *(ended(n, Outcome.SKIPPED, f"at least {n}.20 GiB", "dominated") for n in (64, 128)),
        ended(256, Outcome.CRASHED, "SIGSEGV"),
    ]
    for size, scatter in ((8, 0.02), (12, 0.3)):
        flags = [Flag(FlagKind.UNSTABLE, scatter)]
        records.append(
            make_record(micro_batch=size, memory_mib=9000, speed=50, flags=flags, **PLAIN)
        )
    environment = {**H200, "gpu_memory_bytes": 141 * GIB, "driver": ""}
    folder = write_run(
        tmp_path,
        [replace(record, environment=environment) for record in records],
        config=GUIDE_CONFIG,
        baseline={"micro_batch": 4, "precision": "fp32"},
        budgets=[GIB, 5 * GIB, 8 * GIB],
        one_time_costs={"node-1": {"preload": 12.0, "build": "cached"}},
        search=SEARCH,
    )
    text = markdown.render(Report(dataset=load_dataset(folder)))
    assert_golden("report.md", without_ids(text))


def test_pareto_front_without_the_baselines_recipe_names_the_ranked_one(tmp_path):
    sgd = make_record(optimizer="sgd", recipe={"optimizer": "sgd"})
    failed = make_record(optimizer="adamw_torch_fused", outcome=Outcome.OUT_OF_MEMORY)
    content = pareto_front.make(*loaded(tmp_path, [sgd, failed]))
    ranked = "Ranked: optimizer=sgd, because no trial of the baseline's recipe ended ok."
    assert ranked in content.text


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


@pytest.mark.parametrize(
    ("name", "is_linked"),
    [("logs/abc123.txt", True), ("../../etc/passwd", False), ("logs/a.txt/../b", False)],
)
def test_failures_link_only_the_runs_own_logs(name, is_linked, tmp_path):
    failed = with_provenance(make_record(outcome=Outcome.FAILED, reason="no"), log_file=name)
    content = failed_trials.make(load_dataset(write_run(tmp_path, [failed])))
    assert ("log_file" in content.tables[0].rows[0]["trials"][0]) is is_linked


def test_search_summary_without_audit_says_the_error_is_unknown():
    _, audit = search_outcome.search_sentences(SearchSummary(**{**SEARCH, "audit": {"audited": 0}}))
    assert "error is unknown" in audit
    assert list(search_outcome.search_sentences(None)) == []


def test_search_summary_says_how_far_an_unfinished_run_is(tmp_path):
    spec = make_record(micro_batch=8).spec
    records = [make_record(), skipped(spec, "time_budget", "the time budget ended")]
    run = {"finished": False, "planned": 9, "notes": ["One GPU is unfit."]}
    content = search_outcome.make(load_dataset(write_run(tmp_path, records, **run)))
    assert content.text == (
        "Unfinished run: 2 of 9 trials so far, so every figure may still change.",
        "One GPU is unfit.",
    )
    assert search_outcome.make(load_dataset(write_run(tmp_path, records))) is None


def test_search_summary_of_missing_follow_ups_does_not_call_trials_missing(tmp_path):
    run = {"finished": False, "planned": 1}
    content = search_outcome.make(load_dataset(write_run(tmp_path, [make_record()], **run)))
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


def test_way_to_the_picks_of_a_search_begins_with_the_users_arguments():
    dataset = load_dataset(ROOT / "docs/results/2026-11-26-tune_llm_1b-h200")
    content = way.make(dataset, dataset.main)
    assert [table.caption for table in content.tables] == [
        f"Within {size} GiB." for size in (24, 40, 80)
    ]
    first, *steps = content.tables[1].rows
    assert (first["step"], first.get("speed_ratio")) == ("your arguments", None)
    product = math.prod(step["speed_ratio"] for step in steps)
    assert product == pytest.approx(steps[-1]["samples_per_second"] / first["samples_per_second"])
