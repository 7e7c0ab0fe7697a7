"""A whole sweep without Ray, and why a sweep has failed."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.isolation import prewarm
from jobs.node import environment
from jobs.record import Outcome, TrialRecord, with_provenance
from orchestrator import api
from orchestrator import sweep as verb
from orchestrator.planning.plan import Plan
from orchestrator.planning.problems import ConfigError, Problem
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.tune_space.space import Goal
from orchestrator.running import sweep_run
from orchestrator.running.early_start import CheckModel, Start
from orchestrator.running.options import RunOptions
from orchestrator.running.sweep_run import (
    MakePlan,
    SweepEnd,
    planned_as_written,
    run_sweep,
    why_none_ok,
)
from orchestrator.running.tune_run import space_of
from orchestrator.storage.run_folder import RunFolder
from orchestrator.storage.run_metadata import read_run
from orchestrator.units import GIB
from tests.conftest import TINY_CONFIG
from tests.support.config_files import config_of
from tests.support.fake_ray import FakeRay, node_of
from tests.support.records import make_record

CONFIG = """\
model: {task: sequence-classification, architecture: bert}
axes: {micro_batch: [1, 2], optimizer: [adamw_torch_fused, sgd]}
follow_up: {profile: none, tie_break_rounds: 0, verify_budgets: false}
"""
SKIPPED_FOR_TIME = (Outcome.SKIPPED, "time_budget")


def sweep(
    folder: Path,
    config: str = CONFIG,
    make_plan: MakePlan = planned_as_written,
    check_model: CheckModel = lambda: None,
    **options: bool | float,
) -> SweepEnd:
    run_folder = RunFolder(folder)
    start = Start(
        config=config_of(folder, config),
        options=RunOptions(**options),
        folder=run_folder,
        check_model=check_model,
    )
    with run_folder.locked():
        return run_sweep(start, make_plan)


def outcomes(folder: Path) -> Counter[Outcome]:
    return Counter(record.outcome for record in RunFolder(folder).records().values())


@pytest.mark.parametrize("gpu_model", ["", "H200"])
def test_sweep_measures_its_plan(gpu_model, tmp_path, monkeypatch, capsys):
    FakeRay(monkeypatch, gpu_model)
    assert sweep(tmp_path) == SweepEnd(is_interrupted=False, failure="")
    assert outcomes(tmp_path) == {Outcome.OK: 4}
    printed = capsys.readouterr().out
    assert "sweep: 4 trials, 0 ruled out, on " in printed
    assert "[4/4]  ok" in printed
    run = read_run(tmp_path)
    assert (run.planned, run.finished) == (4, True)
    assert run.notes == ("a sentence about the machines",)
    events = [
        json.loads(line)["event"] for line in (tmp_path / "log.jsonl").read_text().splitlines()
    ]
    assert events == ["started", "ended"] * 4


@pytest.mark.parametrize(
    ("gpu_model", "gpu_here", "plans"),
    [("H200", "H200", [True]), ("H200", "", [False, True]), ("", "H200", [True, False])],
)
def test_plan_is_for_this_machine_and_once_more_for_a_cluster_that_differs(
    gpu_model, gpu_here, plans, tmp_path, monkeypatch
):
    FakeRay(monkeypatch, gpu_model)
    monkeypatch.setattr(environment, "describe", lambda: node_of(gpu_here).environment)
    asked: list[bool] = []

    def make_plan(config: SweepConfig, has_gpu: bool) -> tuple[SweepConfig, Plan]:
        asked.append(has_gpu)
        if has_gpu != bool(gpu_model):
            raise RuntimeError("a plan for this machine, which runs nothing")
        return planned_as_written(config, has_gpu)

    assert sweep(tmp_path, make_plan=make_plan).failure == ""
    assert asked == plans
    assert outcomes(tmp_path) == {Outcome.OK: 4}


def test_model_that_cannot_be_built_ends_the_sweep_before_its_first_trial(tmp_path, monkeypatch):
    ray = FakeRay(monkeypatch, "H200")

    def refuse() -> None:
        raise ConfigError([Problem(file="sweep.yaml", line=1, message="no such activation")])

    with pytest.raises(ConfigError, match="no such activation"):
        sweep(tmp_path, check_model=refuse)
    assert ray.ran == []
    assert outcomes(tmp_path) == {}


def test_second_run_keeps_every_record(tmp_path, monkeypatch, capsys):
    ray = FakeRay(monkeypatch, "H200")
    sweep(tmp_path)
    ray.ran.clear()
    assert sweep(tmp_path).failure == "", "kept trials count"
    assert ray.ran == []
    assert "4 trials measured before: kept" in capsys.readouterr().out


def test_fresh_run_measures_again_and_drops_what_is_not_planned(tmp_path, monkeypatch):
    ray = FakeRay(monkeypatch, "H200")
    sweep(tmp_path)
    ray.ran.clear()
    sweep(tmp_path, CONFIG.replace("[1, 2]", "[1]"), fresh=True)
    assert {spec.micro_batch for spec in ray.ran} == {1}
    assert {spec.trial_id for spec in ray.ran} == set(RunFolder(tmp_path).records())


def test_resume_measures_on_a_gpu_model_that_joined(tmp_path, monkeypatch, capsys):
    FakeRay(monkeypatch, "H200")
    sweep(tmp_path)
    ray = FakeRay(monkeypatch, "H200", "A100")
    sweep(tmp_path, resume=True)
    assert Counter(spec.gpu_model for spec in ray.ran) == {"A100": 4}
    records = RunFolder(tmp_path).records().values()
    assert Counter(record.spec.gpu_model for record in records) == {"A100": 4, "H200": 4}
    assert "4 trials on each of 2 GPU models, 0 ruled out" in capsys.readouterr().out


def test_sweep_without_time_skips_its_plan(tmp_path, monkeypatch):
    FakeRay(monkeypatch, "H200")
    end = sweep(tmp_path, time_budget_seconds=1e-9)
    records = RunFolder(tmp_path).records().values()
    assert {(record.outcome, record.rule) for record in records} == {SKIPPED_FOR_TIME}
    assert end.failure.startswith("no trial ended ok: 4 of 4 trials ended with skipped")


def test_ruled_out_trials_have_their_record(tmp_path, monkeypatch):
    FakeRay(monkeypatch, "H200")
    config = CONFIG.replace("[adamw_torch_fused, sgd]", "[lomo]").replace(
        "micro_batch: [1, 2]", "micro_batch: [1], accumulation: [1, 2]"
    )
    sweep(tmp_path, config)
    assert outcomes(tmp_path) == {Outcome.OK: 1, Outcome.UNSUPPORTED: 1}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a sweep's file; no slot's parent is started ahead."""
    monkeypatch.setenv(prewarm.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini.yaml").write_text(TINY_CONFIG)
    return tmp_path


def test_verb_without_an_ok_trial_fails_with_the_reason(here, monkeypatch, capsys):
    ray = FakeRay(monkeypatch, "H200")
    ray.run_trial = lambda spec: ray.end(spec, Outcome.UNSUPPORTED, "no kernel")
    assert verb.main(["mini.yaml", "--output", "run"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "no trial ended ok: 1 of 1 trial ended with unsupported, most often: no kernel"
    assert (here / "run" / "report.md").exists(), "the report says more"


def test_api_returns_the_run_that_it_measured(here, monkeypatch):
    FakeRay(monkeypatch, "H200")
    measured = api.sweep("mini.yaml", output="run", time_budget="5m")
    assert repr(measured) == "<Run mini: 1 trial, H200>"
    assert (here / "run" / "report.html").exists()


def failed(outcome: Outcome, reason: str, number: int = 1) -> list[TrialRecord]:
    is_started = outcome not in (Outcome.UNSUPPORTED, Outcome.SKIPPED)
    started_at = 1_700_000_000.0 if is_started else 0.0
    return [
        make_record(micro_batch=size, outcome=outcome, reason=reason, started_at=started_at)
        for size in range(1, number + 1)
    ]


def test_sweep_with_an_ok_trial_has_not_failed():
    assert why_none_ok([make_record(), *failed(Outcome.FAILED, "no")]) == ""


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        ("", "nothing is planned"),
        ("2 failed a, 1 failed b, 1 crashed c", "3 of 4 trials ended with failed, most often: a"),
        (
            "1 out_of_memory a, 8 skipped b, 3 unsupported c",
            "1 of 12 trials ended with out_of_memory, most often: a",
        ),
        (
            "2 skipped a",
            "2 of 2 trials ended with skipped, most often: a; --resume with more time goes on",
        ),
        ("3 skipped a, 1 unsupported b", "1 of 4 trials ended with unsupported, most often: b"),
    ],
    ids=["nothing planned", "commonest", "started trials first", "skipped", "not skipped first"],
)
def test_failure_names_the_commonest_reason(ended, sentence):
    groups = [group.split() for group in ended.split(", ") if group]
    records = [
        record
        for number, outcome, reason in groups
        for record in failed(Outcome(outcome), reason, int(number))
    ]
    assert why_none_ok(records) == f"no trial ended ok: {sentence}"


def test_failure_says_which_time_would_be_enough():
    (cut,) = failed(Outcome.SKIPPED, "late", 1)
    measure = replace(cut.spec.measure, warmup_steps=2, steps=10)
    cut = replace(cut, spec=replace(cut.spec, measure=measure), rule="time_budget")
    cut = with_provenance(cut, started_at=1.0, slot_seconds=40.0)
    assert why_none_ok([cut]).endswith("; --resume with more time goes on")
    # Four of twelve steps took 34 s, and the first is no measure of the others.
    cut = replace(cut, steps={"step_seconds": [10.0, 8.0, 8.0, 8.0]})
    enough = "; one takes about 1 min 44 s here, so --resume --time-budget 6m is time for 3"
    assert why_none_ok([cut]).endswith(enough)
    # Of the search's time, the first trial of tune gets half, and 40 s are spent.
    tuned = "--resume --time-budget 6m --gpu-minutes 12 is time for 3"
    assert why_none_ok([cut], is_tune=True).endswith(tuned)
    assert "--resume --gpu-minutes 12" in why_none_ok([replace(cut, rule="x")], is_tune=True)


TUNED = """\
model: {task: causal-lm, architecture: llama}
data: {synthetic: {sequence_length: 64, samples: 8%s}}
training_arguments: {per_device_train_batch_size: 1}
resources: {gpus_per_trial: %s}
"""


@pytest.mark.parametrize(
    ("lengths", "gpus", "is_of_space"),
    [
        (", lengths: {mean: 30}", 1, True),
        ("", 2, True),
        ("", 1, False),
    ],
)
def test_tune_forecasts_what_fits_its_budgets_where_little_is_recorded(
    tmp_path, monkeypatch, lengths, gpus, is_of_space
):
    config = replace(config_of(tmp_path, TUNED % (lengths, gpus)), budgets=(GIB,))
    space = space_of(config, Goal(), 60.0, has_gpu=True, is_remote=True)
    monkeypatch.setattr(sweep_run, "BackgroundPredictor", lambda *how, **_: how)
    monkeypatch.setattr(sweep_run, "build_search", lambda *_, **more: more["predictor"])
    machines = sweep_run.Machines(has_gpu=True, hardware={"NVIDIA H200": "NVIDIA H200"})
    planned = sweep_run.planned_sweep(config, lambda *_: (space.config, space.plan), machines)
    assert bool(planned.predictor) is is_of_space
    if not is_of_space:
        return
    predict, *group = planned.predictor
    assert predict.keywords == {"budgets": (GIB,)}
    traces = group[0](planned.trials["NVIDIA H200"][:1])
    ids = {own.trial_id for own in planned.trials["NVIDIA H200"]}
    assert ids.issuperset(own.trial_id for sets in traces for own in itertools.chain(*sets))
