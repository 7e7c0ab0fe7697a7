"""Recommendations in words and as JSON, on recorded runs."""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator import recommend
from orchestrator.api import load
from orchestrator.reporting.recommendation_notes import notes
from orchestrator.reporting.verbs.recommendation import Workload, render
from orchestrator.reporting.verbs.recommendation_json import to_json
from orchestrator.units import GIB
from tests.support.golden import assert_golden
from tests.support.recorded_runs import RECORDED
from tests.support.records import make_record, write_run

BERT, WHOLE = "2026-11-20-bert_large-7xh200-part", "2026-11-21-bert_large-h200"
GUIDE, TECHNIQUES = "2026-11-21-docs_table-h200", "2026-11-21-all_techniques-2xh200"
TWO_GPUS = "../../tests/data/two_gpus_h100"
WORKLOAD = "--samples 1000000 --epochs 3 --price-per-hour 4.5"
QUESTIONS = (
    f"{BERT} --memory 24GiB --effective-batch 256 {WORKLOAD}",
    f"{BERT} --memory 16GiB",
    f"{BERT} --memory 8GiB --all-training-recipes --objective joules_per_sample",
    f"{BERT} --memory 2GiB",
    f"{GUIDE} --memory 7GiB --effective-batch 4",
    # The nearest better effective batch, and a micro-batch between two that were measured.
    f"{WHOLE} --memory 24GiB --effective-batch 257",
    f"{WHOLE} --memory 24GiB --effective-batch 100",
    # A trial whose loss has a wrong scale, and what is left out.
    f"{TECHNIQUES} --memory 24GiB --effective-batch 64",
    f"{TECHNIQUES} --memory 16GiB",
    # On one GPU and on two.
    TWO_GPUS,
    f"{TWO_GPUS} --memory 50GiB --effective-batch 16 --price-per-hour 3",
)


def test_answers_about_recorded_runs_are_the_recorded_text():
    text = io.StringIO()
    for question in QUESTIONS:
        name, *options = question.split()
        text.write(f"$ python -m orchestrator.recommend {question}\n")
        with redirect_stdout(text), redirect_stderr(text):
            status = recommend.main([str(RECORDED / name), *options])
        text.write(f"[{status}]\n\n")
    assert_golden("recommendations.txt", text.getvalue())


def test_to_json_agrees_with_the_text(tmp_path):
    run = load(write_run(tmp_path, [make_record(speed=50.0)]))
    answer = run.recommend(memory_bytes=8 * GIB)
    document = to_json(run.dataset, run.dataset.main, answer.recommendation, Workload(samples=1000))
    assert document["best"]["configuration"] in render(run.dataset, answer.recommendation)
    assert document["best"]["training"]["seconds"] == pytest.approx(20.0)
    assert document["best"]["training"]["price"] is None


def test_notes_say_what_inference_rests_on(tmp_path):
    known = {"parameters_trainable": 2**20, "parameter_dtypes": "float32"}
    run = load(write_run(tmp_path, [make_record(measurements=known)]))
    best = run.recommend(effective_batch=16).best
    (note,) = notes(run.results, best)
    assert note.startswith("inferred from accumulation 1: ")
    assert note.endswith("which takes up to 4 MiB more")


@pytest.mark.parametrize(
    ("steps", "best"), [(None, "inductor"), (1000, "none"), (2000, "inductor_tuned")]
)
def test_recommend_over_steps_counts_first_steps_and_all_compiling(tmp_path, steps, best):
    def record(compile: str, speed: float, first: float, **compiling: float) -> TrialRecord:
        figures = {"first_step_seconds": first, **compiling}
        return make_record(compile=compile, speed=speed, measurements=figures)

    records = [
        record("none", 100.0, first=0.04),
        # A minute in the first step and forty seconds in later ones, which met new lengths.
        record("inductor", 200.0, first=60.0, compile_seconds=100.0),
        record("inductor_tuned", 150.0, first=20.0, compile_seconds=18.0),
        # Its code was there, so what compiling costs is not known.
        record("inductor_regional", 190.0, first=0.03, inductor_cache_hits=4),
    ]
    answer = load(write_run(tmp_path, records)).recommend(steps=steps)
    assert answer.best.configuration.choices["compile"] == best
    assert steps is None or f"over {steps:,} steps, first step and compiling" in repr(answer)


def test_render_of_a_run_without_results_says_so(tmp_path):
    run = load(write_run(tmp_path, [make_record(outcome=Outcome.FAILED, reason="no")]))
    answer = run.recommend()
    assert "no measured configuration keeps these constraints" in repr(answer)
    assert to_json(run.dataset, run.dataset.main, answer.recommendation)["hardware"] is None


def test_render_counts_trials_that_ended_ok_without_a_speed(tmp_path):
    still = make_record(micro_batch=2, measurements={"samples_per_second": 0.0})
    records = [make_record(speed=50.0), still]
    answer = load(write_run(tmp_path, records)).recommend(all_recipes=True)
    assert repr(answer).endswith("\nnot ranked: 1 without a speed or a memory")


def test_render_says_that_losses_were_not_checked(tmp_path):
    record = replace(make_record(speed=50.0), steps={"step_seconds": [0.1, 0.1]})
    run = load(write_run(tmp_path, [record]))
    answer = run.recommend()
    assert "losses not checked: there is no reference to compare them with" in repr(answer)
    document = to_json(run.dataset, run.dataset.main, answer.recommendation)
    assert document["best"]["loss_check"] == "not checked"


@pytest.mark.parametrize(("gpu", "wanted"), [(True, True), (True, False), (False, True)])
def test_notes_say_that_gradients_which_should_have_been_compared_were_not(tmp_path, gpu, wanted):
    config = {"follow_up": {"check_gradients": wanted}}
    run = load(write_run(tmp_path, [make_record(gpu=gpu)], config=config))
    best = run.recommend().recommendation.best
    is_said = any("gradients not compared" in each for each in notes(run.dataset.main, best))
    assert is_said == (gpu and wanted)


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"new_shapes_share": 0.1, "epoch_growth_bytes": 3 * GIB}, ["3 GiB more than"]),
        ({"new_shapes_share": 0.1, "epoch_growth_bytes": -2 * GIB}, ["2 GiB less than"]),
        ({"new_shapes_share": 0.1}, ["memory of a few steps"]),
        ({"new_shapes_share": 0.1, "epoch_growth_bytes": 0}, []),
        ({}, []),
    ],
)
def test_notes_say_what_an_epoch_adds_to_a_few_steps(tmp_path, measured, words):
    run = load(write_run(tmp_path, [make_record(measurements=measured)]))
    said = notes(run.dataset.main, run.recommend().recommendation.best)
    found = [own for own in said if own.startswith("memory of")]
    assert len(found) == len(words)
    assert all(part in own for part, own in zip(words, found, strict=True))
