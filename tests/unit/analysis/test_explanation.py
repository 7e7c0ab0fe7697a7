"""Two trials side by side: every clause has its figure, the parts add up, and what cannot be explained is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from jobs.record import Outcome, TrialRecord
from jobs.spec import FollowUp
from orchestrator import explain
from orchestrator.analysis.explanation import explain as explanation_of
from orchestrator.reporting.explanation import render, seconds
from orchestrator.reporting.loss_curves import lines
from orchestrator.units import memory
from tests.support.records import H200, make_anatomy, make_record, write_run

GOLDEN = Path(__file__).parents[2] / "golden" / "explanation.txt"
SLOW = make_record(
    speed=100,
    precision="fp32",
    anatomy=make_anatomy(),
    measurements={
        "matmul_dtype": "float32",
        "first_step_seconds": 0.8,
        "gpu_sm_clock_mhz": 1800.0,
        "gpu_power_capped_share": 0.0,
    },
)
FAST = replace(
    make_record(
        memory_mib=640,
        speed=150,
        precision="bf16",
        equivalence="exact · dtype=bf16",
        measurements={
            "matmul_dtype": "bfloat16",
            "first_step_seconds": 60.8,
            "gpu_sm_clock_mhz": 1795.0,
            "gpu_power_capped_share": 0.9,
            "warnings": ["unstable: it is"],
        },
    ),
    steps={"step_seconds": [0.5, 0.1, 0.1], "loss": [3.01, 2.0, 1.25]},
)


def again(record: TrialRecord, scale: float) -> TrialRecord:
    """The follow-up that takes a record's trial apart."""
    spec = record.spec
    follow_up = FollowUp(follows=record.trial_id, purpose="anatomy")
    return replace(
        record,
        spec=replace(spec, measure=replace(spec.measure, anatomy=True), follow_up=follow_up),
        anatomy=make_anatomy(scale),
    )


def test_each_clause_has_its_figure_and_a_follow_up_tells_of_the_trial_it_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_run(tmp_path, [SLOW, FAST, again(FAST, 0.4)]))
    picture = tmp_path / "why.png"
    assert explain.main([folder, SLOW.trial_id, FAST.trial_id[:7], "--picture", str(picture)]) == 0
    assert capsys.readouterr().out == GOLDEN.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_losses_that_the_guard_would_not_allow_are_said_to_be_apart(tmp_path: Path) -> None:
    curves = {
        "steady": [1.0] * 8,
        "twice": [1.0] * 4 + [2.0] * 4,
        "broken": [1.0, float("nan")] + [1.0] * 6,
    }
    records = {
        name: replace(
            make_record(micro_batch=size), steps={"loss": losses, "step_seconds": [0.1] * 8}
        )
        for size, (name, losses) in enumerate(curves.items(), 1)
    }
    run = orchestrator.load(write_run(tmp_path, list(records.values())))
    found = {
        name: explanation_of(run, records["steady"].trial_id, records[name].trial_id).losses
        for name in records
    }
    steady, twice, broken = (found[name] for name in curves)
    assert steady is not None
    assert twice is not None
    assert broken is not None
    assert (steady.agree, twice.agree, broken.agree) == (True, False, True)
    assert twice.furthest == 4
    assert len(broken.after) == 1, "it ends before what is no number"
    text = "\n".join(lines(twice))
    assert (
        "at most 1 apart, in step 5 of the 8 that both trained; on average further apart than the guard"
        in text
    )
    assert "steps 5 to 8: 2 instead of 1 on average, 100 % apart" in text


@pytest.mark.parametrize(
    "records", [[SLOW, FAST], [SLOW, FAST, again(FAST, 0.4)]], ids=["columns", "anatomies"]
)
def test_parts_add_up_to_the_figures_that_they_explain(
    records: list[TrialRecord], tmp_path: Path
) -> None:
    found = explanation_of(
        orchestrator.load(write_run(tmp_path, records)), SLOW.trial_id, FAST.trial_id
    )
    for account in (found.seconds_per_sample, found.memory_bytes):
        assert account.source == ("anatomy" if len(records) == 3 else "columns")
        assert sum(share.before for share in account.shares) == pytest.approx(account.before)
        assert sum(share.after for share in account.shares) == pytest.approx(account.after)
    assert found.seconds_per_sample.after == pytest.approx(1 / 150)


def test_a_profiled_step_that_was_slower_gives_shares_and_says_so(tmp_path: Path) -> None:
    slow = replace(SLOW, anatomy=make_anatomy(10))
    found = explanation_of(
        orchestrator.load(write_run(tmp_path, [slow, FAST, again(FAST, 1)])),
        SLOW.trial_id,
        FAST.trial_id,
    )
    shares = {share.name: share for share in found.seconds_per_sample.shares}
    assert shares["tensor contractions"].before == pytest.approx(0.01 * 240 / 256)
    assert shares["idle"].before == pytest.approx(0)
    assert any(
        text.startswith("A: the profiled step worked for 6.40 times") for text in found.cautions
    )


def test_a_trial_beside_itself_is_as_it_is(tmp_path: Path) -> None:
    found = explanation_of(
        orchestrator.load(write_run(tmp_path, [SLOW])), SLOW.trial_id, SLOW.trial_id
    )
    text = render(found)
    assert "Chosen otherwise: nothing." in text
    assert "Time: B is as A" in text
    assert "%" not in text.split("\n\n", 2)[2]
    assert not found.facts


@pytest.mark.parametrize(
    ("other", "status", "said"),
    [
        (
            {"outcome": Outcome.OUT_OF_MEMORY, "reason": "no room"},
            3,
            "was not measured: out_of_memory: no room",
        ),
        ({"environment": {**H200, "torch": "1.0"}}, 3, "unlike hardware or versions"),
    ],
)
def test_what_cannot_be_explained_is_said(
    other: dict[str, Any],
    status: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    second = make_record(micro_batch=8, **other)
    folder = str(write_run(tmp_path, [SLOW, second]))
    assert explain.main([folder, SLOW.trial_id, second.trial_id]) == status
    assert said in capsys.readouterr().err


def test_a_name_that_no_trial_or_several_have_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [make_record(micro_batch=size) for size in range(1, 30)]
    folder = str(write_run(tmp_path, records))
    first = records[0].trial_id
    shared = next(
        r.trial_id[0] for r in records if sum(o.trial_id[0] == r.trial_id[0] for o in records) > 1
    )
    for name, said in (
        ("no such", 'no trial "no such" here'),
        (shared, f'several trials begin with "{shared}"'),
    ):
        assert explain.main([folder, first, name]) == 2
        assert said in capsys.readouterr().err
    assert explain.main([str(tmp_path / "nothing"), first, first]) == 2


def test_json_holds_the_text_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_run(tmp_path, [SLOW, FAST]))
    explain.main([folder, SLOW.trial_id, FAST.trial_id, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["memory_bytes"]["source"] == "columns"
    assert found["text"].startswith(f"A {SLOW.trial_id}")


def test_figures_below_zero_and_dust_are_written_as_such() -> None:
    assert [seconds(value) for value in (1.5, 0.0029, -0.0005, 1e-17, -1e-17)] == [
        "1.50 s",
        "2.90 ms",
        "−0.5 ms",
        "0 ms",
        "0 ms",
    ]
    assert memory(-3 * 2**20) == "−3 MiB"
