"""Every verb that prints a table prints it as JSON, too: strict, whole, and nothing else on stdout."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from jobs.record import Outcome
from orchestrator import batch_size, compare, doctor, explain, predict, recommend, report, sweep
from tests.support.records import make_record, write_run

ROOT = Path(__file__).parents[3]
QUICKSTART = str(ROOT / "configs" / "quickstart.yaml")
Verb = Callable[[list[str]], int]


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run of three trials: one whose speed nobody can be sure of, one out of memory."""
    vague = make_record(micro_batch=4, memory_mib=2000, speed=900.0)
    records = [
        make_record(micro_batch=2),
        replace(vague, measurements={**vague.measurements, "samples_per_second_ci95": math.inf}),
        replace(
            make_record(micro_batch=8),
            outcome=Outcome.OUT_OF_MEMORY,
            reason="no",
            measurements={},
            steps={},
        ),
    ]
    return str(write_run(tmp_path / "run", records))


def refuse(constant: str) -> NoReturn:
    """What Python writes and JSON does not know."""
    raise ValueError(f"{constant} is no JSON")


def printed(verb: Verb, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """The verb's output, read strictly."""
    verb([*arguments, "--json"])
    return json.loads(capsys.readouterr().out, parse_constant=refuse)


def test_a_run_is_summed_up(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(report.main, [run], capsys)
    assert found["outcomes"] == {"ok": 2, "out_of_memory": 1}
    (hardware,) = found["hardware"]
    front = {point["choices"]["micro_batch"]: point for point in hardware["frontier"]}
    assert (
        front[2]["samples_per_second"]
        == make_record(micro_batch=2).measurements["samples_per_second"]
    )
    assert front[4]["samples_per_second_ci95"] is None
    assert {budget["best"]["trial_id"] for budget in hardware["budgets"] if budget["best"]} <= {
        point["trial_id"] for point in hardware["frontier"]
    }
    assert [failure["outcome"] for failure in found["not_ok"]] == ["out_of_memory"]
    assert all(Path(path).exists() for path in found["files"])


def test_a_plan_names_every_trial(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(sweep.main, [QUICKSTART, "--dry-run"], capsys)
    assert len({trial["trial_id"] for trial in found["trials"]}) == 16
    assert {trial["choices"]["activations"] for trial in found["trials"]} == {"keep", "checkpoint"}
    sets = printed(batch_size.main, [QUICKSTART, "--dry-run", "--all"], capsys)["technique_sets"]
    assert len({one["label"] for one in sets}) == 4


def test_the_other_verbs_too(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(recommend.main, [run], capsys)["best"]["memory_bytes"] > 0
    assert printed(compare.main, [run, run], capsys)["matched"] == 2
    (two, four) = (make_record(micro_batch=size).trial_id for size in (2, 4))
    assert printed(explain.main, [run, two, four], capsys)["after"]["samples_per_second"] == 900.0
    assert {"node", "findings"} <= printed(doctor.main, [], capsys)[0].keys()
    trial = printed(sweep.main, [QUICKSTART, "--dry-run"], capsys)["trials"][0]["trial_id"]
    (row,) = printed(predict.main, [QUICKSTART, "--trial", trial], capsys)
    assert row["trial_id"] == trial
