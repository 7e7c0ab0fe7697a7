"""explain: exit statuses, and trials that cannot be explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.record import Outcome
from orchestrator import explain
from tests.support.records import H200, make_record, write_run

FIRST = make_record()


def test_explain_takes_the_beginning_of_an_id_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = make_record(micro_batch=8)
    folder, picture = write_run(tmp_path, [FIRST, second]), tmp_path / "why.png"
    arguments = [str(folder), FIRST.trial_id, second.trial_id[:7], "--picture", str(picture)]
    assert explain.main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"A {FIRST.trial_id}: batch 4")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_explain_draws_over_no_file_of_the_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = make_record(micro_batch=8)
    folder, picture = write_run(tmp_path / "run", [FIRST, second]), tmp_path / "why.png"
    picture.write_text("mine")
    arguments = [str(folder), FIRST.trial_id, second.trial_id, "--picture", str(picture)]
    assert explain.main(arguments) == 2
    assert "already exists; nothing was written" in capsys.readouterr().err
    assert picture.read_text() == "mine"
    assert explain.main([*arguments, "--force"]) == 0


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"outcome": Outcome.OUT_OF_MEMORY, "reason": "no room"}, "out_of_memory: no room"),
        ({"environment": {**H200, "torch": "1.0"}}, "different hardware or versions"),
    ],
)
def test_explain_says_why_it_cannot(
    other: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = make_record(micro_batch=8, **other)
    folder = str(write_run(tmp_path, [FIRST, second]))
    assert explain.main([folder, FIRST.trial_id, second.trial_id]) == explain.EXIT_UNEXPLAINED
    assert said in capsys.readouterr().err


def test_explain_of_an_unknown_trial_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [make_record(micro_batch=size) for size in range(1, 30)]
    folder = str(write_run(tmp_path, records))
    first = records[0].trial_id
    begins = [record.trial_id[0] for record in records]
    shared = next(sign for sign in begins if begins.count(sign) > 1)
    for name, said in (("none", 'no trial "none"'), (shared, "several trials begin with")):
        assert explain.main([folder, first, name]) == 2
        assert said in capsys.readouterr().err
    assert explain.main([str(tmp_path / "nothing"), first, first]) == 2
