"""Every verb that prints a table prints it as JSON, too: strict, and nothing else on stdout."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from jobs.record import Outcome
from orchestrator import batch_size, compare, explain, recommend, report, sweep
from tests.support.commands import ROOT
from tests.support.records import make_record, write_run

QUICKSTART = str(ROOT / "configs" / "quickstart.yaml")
Verb = Callable[[list[str]], int]


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run of three trials: one whose speed has no known interval, one out of memory."""
    vague = make_record(micro_batch=4, memory_mib=2000, speed=900.0)
    failed = {"outcome": Outcome.OUT_OF_MEMORY, "reason": "no", "measurements": {}, "steps": {}}
    records = [
        make_record(micro_batch=2),
        replace(vague, measurements={**vague.measurements, "samples_per_second_ci95": math.inf}),
        replace(make_record(micro_batch=8), **failed),
    ]
    return str(write_run(tmp_path / "run", records))


def refuse(constant: str) -> NoReturn:
    """Raises for what Python writes and JSON does not allow."""
    raise ValueError(f"{constant} is no JSON")


def printed(verb: Verb, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """The verb's output, read strictly."""
    verb([*arguments, "--json"])
    return json.loads(capsys.readouterr().out, parse_constant=refuse)


def test_report_json_holds_head_and_sections(run, capsys):
    document = printed(report.main, [run], capsys)
    assert document["run"] == "synthetic"
    assert document["outcomes"] == {"ok": 2, "out_of_memory": 1}
    assert document["slot_seconds"] == 9.0
    (environment,) = document["environments"]
    front = {row["choices"]["micro_batch"]: row for row in environment["pareto_front"]["rows"]}
    assert front[2]["samples_per_second"] == 100.0
    assert front[4]["samples_per_second_error95"] is None
    picks = {row["trial_id"] for row in environment["budgets"]["rows"] if row["trial_id"]}
    assert picks <= {row["trial_id"] for row in front.values()}
    assert [row["outcome"] for row in document["failures"]["rows"]] == ["out_of_memory"]
    assert all(Path(path).exists() for path in document["files"])


def test_recommend_compare_and_explain_print_json(run, capsys):
    assert printed(recommend.main, [run], capsys)["best"]["memory_bytes"] > 0
    assert printed(compare.main, [run, run], capsys)["matched"] == 2
    two, four = (make_record(micro_batch=size).trial_id for size in (2, 4))
    assert printed(explain.main, [run, two, four], capsys)["after"]["samples_per_second"] == 900.0


def test_dry_run_of_no_trial_fails(tmp_path, capsys):
    nothing = tmp_path / "nothing.yaml"
    nothing.write_text("model: {task: causal-lm, architecture: llama}\naxes: {base: bnb_4bit}\n")
    assert sweep.main([str(nothing), "--dry-run"]) == 1
    assert "no trial is left" in capsys.readouterr().out


def test_dry_runs_name_every_trial(capsys):
    plan = printed(sweep.main, [QUICKSTART, "--dry-run"], capsys)
    assert len({trial["trial_id"] for trial in plan["trials"]}) == 16
    sets = printed(batch_size.main, [QUICKSTART, "--dry-run", "--all"], capsys)["technique_sets"]
    assert len({own["label"] for own in sets}) == 4
