"""report, recommend, compare and explain: exit statuses for CI, and what cannot be answered."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator import compare, explain, recommend, report
from orchestrator.cli import EXIT_FAILURE
from tests.support.records import GPU_BOUND, H200, make_record, write_run


def test_report_prints_the_summary_and_the_files(tmp_path, capsys):
    folder = write_run(tmp_path, [make_record()])
    assert report.main([str(folder), "--no-browser"]) == 0
    printed = capsys.readouterr().out
    assert "1 trial: 1 ok" in printed
    assert "report.html" in "".join(printed.split())  # long paths are wrapped


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run in which another training recipe is the fastest."""
    sgd = make_record(speed=400.0, optimizer="sgd", recipe={"optimizer": "sgd"})
    plain = make_record(speed=100.0, optimizer="adamw_torch_fused")
    return str(write_run(tmp_path, [sgd, plain]))


def test_recommend_exit_status_says_whether_anything_fits(run, tmp_path, capsys):
    assert recommend.main([run, "--memory", "8GiB"]) == 0
    assert recommend.main([run, "--memory", "1MiB"]) == EXIT_FAILURE
    assert recommend.main([str(tmp_path / "none"), "--memory", "8GiB"]) == 2
    with pytest.raises(SystemExit, match="2"):
        recommend.main([run, "--objective", "dollars_per_million"])
    assert "needs --price-per-hour" in capsys.readouterr().err


def test_recommend_ranks_other_recipes_only_where_asked(run, capsys):
    recommend.main([run])
    assert "  batch 4×1 · adamw_torch_fused: 100 samples/s" in capsys.readouterr().out
    recommend.main([run, "--all-training-recipes"])
    assert "other training recipe than the baseline: optimizer=sgd" in capsys.readouterr().out


@pytest.mark.parametrize("price", ["nan", "inf", "0", "-1"])
def test_recommend_refuses_a_price_that_is_no_number_above_zero(price, capsys):
    with pytest.raises(SystemExit):
        recommend.main(["run", "--objective", "dollars_per_million", f"--price-per-hour={price}"])
    assert "must be a number above zero" in capsys.readouterr().err


def steady(factor: float = 1.0) -> list[TrialRecord]:
    """Three records with narrow intervals, their speed scaled."""
    return [
        make_record(micro_batch=2**n, speed=0.1 * factor, measurements=GPU_BOUND) for n in range(3)
    ]


def written(folder: Path, *runs: list[TrialRecord], **about: Any) -> list[str]:
    return [
        str(write_run(folder / str(place), records, **about)) for place, records in enumerate(runs)
    ]


def test_compare_fails_over_the_tolerance_only(tmp_path):
    runs = written(tmp_path, steady(), steady(0.95))
    statuses = [compare.main([*runs, "--fail-over", share]) for share in ("3%", "0.04", "10%")]
    assert statuses == [compare.EXIT_WORSE, compare.EXIT_WORSE, 0]
    assert compare.main(runs) == 0


def test_compare_with_a_wrong_call_is_a_usage_error(tmp_path):
    (run,) = written(tmp_path, steady())
    assert compare.main([run, str(tmp_path / "nowhere")]) == 2
    with pytest.raises(SystemExit, match="2"):
        compare.main([run, run, "--fail-over", "three"])


@pytest.mark.parametrize(
    ("environment", "config"),
    [({**H200, "gpu_model": "NVIDIA A100"}, {}), (H200, {"model": {"architecture": "llama"}})],
    ids=["another GPU", "another model"],
)
def test_compare_refuses_different_hardware_unless_asked(environment, config, tmp_path, capsys):
    before = write_run(tmp_path / "before", steady())
    after = [replace(record, environment=environment) for record in steady()]
    runs = [str(before), str(write_run(tmp_path / "after", after, config=config))]
    assert compare.main(runs) == compare.EXIT_DIFFERENT_HARDWARE
    assert "--different-hardware compares them" in capsys.readouterr().err
    assert compare.main([*runs, "--different-hardware"]) == 0


@pytest.mark.parametrize("environment", [H200, {}], ids=["reported", "no trial reported it"])
def test_compare_run_in_which_every_trial_failed_is_worse_not_other_hardware(
    environment, tmp_path, capsys
):
    failed = [
        replace(record, outcome=Outcome.FAILED, environment=environment, measurements={}, steps={})
        for record in steady()
    ]
    config = {"measure": {"seed": 1, "steps": 10}, "cpu_fallback": {"steps": 3}}
    runs = written(tmp_path, steady(), failed, config=config)
    assert compare.main([*runs, "--fail-over", "3%"]) == compare.EXIT_WORSE
    printed = capsys.readouterr().out
    assert printed.count("regressed: ") == 3
    assert "differs: measure" not in printed


def test_compare_prints_markdown(tmp_path, capsys):
    assert compare.main([*written(tmp_path, steady(), steady(0.9)), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### synthetic (NVIDIA H200) → synthetic")


FIRST = make_record()


def test_explain_takes_the_beginning_of_an_id(tmp_path, capsys):
    second = make_record(micro_batch=8)
    folder = write_run(tmp_path, [FIRST, second])
    assert explain.main([str(folder), FIRST.trial_id, second.trial_id[:7]]) == 0
    assert capsys.readouterr().out.startswith(f"A {FIRST.trial_id}: batch 4")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"outcome": Outcome.OUT_OF_MEMORY, "reason": "no room"}, "out_of_memory: no room"),
        ({"environment": {**H200, "torch": "1.0"}}, "different hardware or versions"),
    ],
)
def test_explain_says_why_it_cannot(other, said, tmp_path, capsys):
    second = make_record(micro_batch=8, **other)
    folder = str(write_run(tmp_path, [FIRST, second]))
    assert explain.main([folder, FIRST.trial_id, second.trial_id]) == explain.EXIT_UNEXPLAINED
    assert said in capsys.readouterr().err


def test_explain_of_an_unknown_trial_is_a_usage_error(tmp_path, capsys):
    records = [make_record(micro_batch=size) for size in range(1, 30)]
    folder = str(write_run(tmp_path, records))
    first = records[0].trial_id
    begins = [record.trial_id[0] for record in records]
    shared = next(sign for sign in begins if begins.count(sign) > 1)
    for name, said in (("none", 'no trial "none"'), (shared, "several trials begin with")):
        assert explain.main([folder, first, name]) == 2
        assert said in capsys.readouterr().err
    assert explain.main([str(tmp_path / "nothing"), first, first]) == 2
