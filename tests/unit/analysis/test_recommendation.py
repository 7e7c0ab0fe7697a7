"""Recommendations: nothing that keeps the constraints is better, inferred figures are bounds, costs are the truth."""

from __future__ import annotations

import dataclasses
import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobs.record import Outcome, TrialRecord
from orchestrator import recommend as verb
from orchestrator.analysis.accumulation import candidates
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.pareto import Point
from orchestrator.analysis.recommendation import Wish, recommend
from orchestrator.api import load
from orchestrator.export.rebuilt_spec import trial_of
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.storage.run_metadata import Run
from orchestrator.storage.tables.parquet import axes_of, run_of, trials_table
from tests.support.records import COLUMNS

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "docs" / "results"
GIB = 2**30


def point(
    micro: int, accumulation: int, memory: int, speed: float, kind: str = "", **row: object
) -> Point:
    return Point(
        choices={"micro_batch": micro, "accumulation": accumulation, "loop": "trainer"},
        environment_id="e",
        equivalence=f"effective_batch={micro * accumulation}{kind}",
        memory_bytes=memory,
        samples_per_second=speed,
        row={
            "micro_batch": micro,
            "accumulation": accumulation,
            "effective_batch": micro * accumulation,
            **row,
        },
        trial_ids=("t",),
    )


POINTS = st.lists(
    st.builds(
        point,
        st.sampled_from([1, 2, 4]),
        st.sampled_from([1, 2, 4]),
        st.integers(1, 100),
        st.floats(1, 100),
        st.sampled_from(["", " · optimizer=sgd"]),
        parameters_trainable=st.just(3),
        parameter_dtypes=st.just("float32"),
    ),
    max_size=12,
)
WISHES = st.builds(
    Wish,
    memory_bytes=st.none() | st.integers(1, 100),
    effective_batch=st.none() | st.sampled_from([2, 4, 8, 16]),
    exact=st.booleans(),
    any_training=st.booleans(),
    price_per_hour=st.just(4.0),
    objective=st.sampled_from(
        [OBJECTIVES["samples_per_second"], OBJECTIVES["dollars_per_million"]]
    ),
)


@given(POINTS, WISHES)
def test_nothing_that_keeps_the_constraints_is_much_better(points: list[Point], wish: Wish) -> None:
    answer = recommend(points, wish)
    allowed = [c for c in candidates(points, wish.effective_batch) if wish.allows(c, "")]
    assert (answer.best is None) == (not allowed)
    if answer.best is None:
        return
    assert wish.allows(answer.best, "")
    top = max(wish.score(c) for c in allowed)
    assert wish.score(answer.best) >= top - 0.05 * abs(top)
    measured = [wish.score(c) for c in allowed if not c.inferred]
    assert answer.best.inferred or wish.score(answer.best) == max(measured)
    for cost in answer.costs:
        assert cost.ratio is not None
        better = cost.ratio > 1 if wish.objective.higher_is_better else cost.ratio < 1
        assert better or cost.constraint == "less memory"


def test_only_more_accumulation_is_inferred_and_gradients_are_counted() -> None:
    known = {"parameters_trainable": 10, "parameter_dtypes": "float32"}
    (found,) = candidates([point(4, 1, 1000, 50.0, **known)], 16)
    assert (found.inferred, found.accumulation, found.point.memory_bytes) == (True, 4, 1040)
    (found,) = candidates([point(4, 1, 1000, 50.0, **known), point(4, 2, 1030, 55.0, **known)], 16)
    assert (found.measured.row["accumulation"], found.point.memory_bytes) == (
        2,
        1030,
    )  # the nearest; kept already
    assert not candidates(
        [point(4, 8, 1000, 50.0, **known)], 16
    )  # less accumulation would be slower
    assert not candidates([point(3, 1, 1000, 50.0, **known)], 16)
    assert not candidates([point(4, 1, 1000, 50.0)], 16)  # nobody knows what its gradients take
    measured = candidates([point(4, 1, 1000, 50.0, **known), point(4, 4, 1035, 60.0, **known)], 16)
    assert [c.inferred for c in measured] == [False]


def test_the_inferred_bounds_hold_where_the_accumulation_was_measured_too() -> None:
    points = load(RECORDED / "2026-11-21-all_techniques-2xh200").own()
    (accumulated,) = [p for p in points if (p.row["micro_batch"], p.row["accumulation"]) == (16, 4)]
    others = [p for p in points if p is not accumulated and p.row["accumulation"] == 1]
    alike = {axis: value for axis, value in accumulated.choices.items() if axis != "accumulation"}
    (bound,) = [
        c for c in candidates(others, 64) if {**c.point.choices, **alike} == c.point.choices
    ]
    assert bound.point.samples_per_second <= accumulated.samples_per_second
    assert accumulated.memory_bytes <= bound.point.memory_bytes <= 1.01 * accumulated.memory_bytes
    (heir,) = [
        c for c in candidates(points, 128) if {**c.point.choices, **alike} == c.point.choices
    ]
    assert (
        heir.point.trains_differently
    )  # upstream's accumulation is feared of further accumulation, too


QUESTIONS = """\
2026-11-20-bert_large-7xh200-part --memory 24GiB --effective-batch 256 --samples 1000000 --epochs 3 --price-per-hour 4.5
2026-11-20-bert_large-7xh200-part --memory 16GiB --exact
2026-11-20-bert_large-7xh200-part --memory 8GiB --any-training --objective joules_per_sample
2026-11-20-bert_large-7xh200-part --memory 2GiB
2026-11-21-docs_table-h200 --memory 7GiB --effective-batch 4 --exact
""".splitlines()


def answers() -> str:
    """Five questions to recorded runs, as a person asks them, and what is answered."""
    text = io.StringIO()
    for question in QUESTIONS:
        name, *options = question.split()
        text.write(f"$ python -m orchestrator.recommend {question}\n")
        with redirect_stdout(text):
            status = verb.main([str(RECORDED / name), *options])
        text.write(f"[{status}]\n\n")
    return text.getvalue()


def test_answers_to_five_questions_of_recorded_runs() -> None:
    assert answers() == (ROOT / "tests" / "golden" / "recommendations.txt").read_text()


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    run = str(RECORDED / "2026-11-21-docs_table-h200")
    assert verb.main([run, "--memory", "8GiB", "--samples", "1000", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["best"]["memory_bytes"] <= 8 * GIB
    assert answer["best"]["training"]["seconds"] == pytest.approx(
        1000 / answer["best"]["samples_per_second"]
    )
    assert verb.main([run, "--memory", "1GiB"]) == 1
    assert verb.main([str(ROOT / "docs"), "--memory", "8GiB"]) == 2
    with pytest.raises(SystemExit, match="2"):
        verb.main([run, "--objective", "dollars_per_million"])


def test_files_are_written_from_a_published_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(RECORDED / "2026-11-20-bert_large-7xh200-part")
    asked = [
        "--memory",
        "24GiB",
        "--effective-batch",
        "256",
        "--epochs",
        "3",
        "--export",
        str(tmp_path / "mine"),
    ]
    assert verb.main([run, *asked]) == 0
    settings = yaml.safe_load((tmp_path / "mine" / "training_arguments.yaml").read_text())
    batch = settings["per_device_train_batch_size"], settings["gradient_accumulation_steps"]
    assert (batch, settings["num_train_epochs"], settings["bf16"]) == ((32, 8), 3.0, True)
    readme = (tmp_path / "mine" / "README.md").read_text()
    assert "inferred from accumulation 1" in readme
    assert "model_accepts_loss_kwargs" in readme
    assert {line.rpartition("/")[2] for line in capsys.readouterr().err.split()} >= {
        "train.py",
        "accelerate.yaml",
    }


@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_row_of_a_published_table_is_rebuilt_to_the_trial_it_was(
    has_gpu: bool, tmp_path: Path
) -> None:
    config = load_config(ROOT / "configs" / "all_techniques.yaml")
    run = Run(config=config.to_json())
    gpu = {"gpu_model": "NVIDIA H200"} if has_gpu else {}
    specs = plan(config, has_gpu=has_gpu).trials
    records = [TrialRecord(spec=spec, outcome=Outcome.FAILED, environment=gpu) for spec in specs]
    table = trials_table(
        records, COLUMNS, Run.from_json(json.loads(json.dumps(dataclasses.asdict(run))))
    )
    rebuilt = [trial_of(tmp_path, row, axes_of(table), run_of(table)) for row in table.to_pylist()]
    assert [spec.recipe for spec, _ in rebuilt] == [spec.recipe for spec in specs]
    assert {doubt for _, doubt in rebuilt} == {""}
    changed = [{**row, "trial_id": "another"} for row in table.to_pylist()]
    assert "changed since" in trial_of(tmp_path, changed[0], axes_of(table), run_of(table))[1]
