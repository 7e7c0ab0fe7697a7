"""``import orchestrator``: loads little until it is used, then answers questions about a run."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan

ROOT = Path(__file__).parents[2]
RUN = ROOT / "docs" / "results" / "2026-11-21-docs_table-h200"
HEAVY = ("pyarrow", "numpy", "pandas", "torch", "ray", "transformers", "jinja2", "matplotlib")


@pytest.fixture(scope="module")
def run() -> orchestrator.Run:
    """A recorded run."""
    return orchestrator.load(RUN)


def test_import_and_help_of_verbs_load_nothing_heavy() -> None:
    program = f"""
import sys, contextlib, io
import orchestrator
from orchestrator import compare, recommend
for verb in (recommend, compare):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        verb.main(["--help"])
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_run_tables_have_one_row_per_trial(run: orchestrator.Run) -> None:
    assert run.to_arrow().num_rows == len(run.dataset.rows) == len(run.to_pandas())
    assert len(repr(run)) < 200


def test_run_frontier_rises_in_memory_and_speed(run: orchestrator.Run) -> None:
    front = run.frontier()
    memories = [own.memory_bytes for own in front]
    speeds = [own.samples_per_second for own in front]
    assert len(front) > 1
    assert memories == sorted(memories)
    assert speeds == sorted(speeds)


def test_run_frontier_of_more_objectives_contains_the_plain_one(run: orchestrator.Run) -> None:
    plain = {run.label(own) for own in run.frontier()}
    wider = {run.label(own) for own in run.frontier(["samples_per_second", "joules_per_sample"])}
    assert plain <= wider


def test_run_frontier_has_one_training_recipe_unless_asked(run: orchestrator.Run) -> None:
    assert {own.training_recipe for own in run.frontier()} == {run.results.recipe}
    assert len({own.training_recipe for own in run.frontier(all_recipes=True)}) > 1


def test_run_shows_its_frontier_in_a_notebook(run: orchestrator.Run) -> None:
    shown = run._repr_html_()
    assert all(run.label(own) in shown for own in run.frontier())


def test_run_recommends_and_exports(run: orchestrator.Run, tmp_path: Path) -> None:
    answer = run.recommend(memory_bytes=8 * 2**30)
    assert answer.best is not None
    label = run.label(answer.best.configuration)
    assert label in str(answer)
    assert label in answer._repr_html_()
    assert tmp_path / "train.py" in run.export(answer.best, tmp_path)


def test_run_compared_with_itself_has_no_change(run: orchestrator.Run) -> None:
    assert not [change for change in run.compare(run).changes if change.is_regression]


def test_run_recommends_for_a_size_as_people_write_it(run: orchestrator.Run) -> None:
    as_text = orchestrator.recommend(RUN, memory="8GiB").best
    as_number = run.recommend(memory_bytes=8 * 2**30).best
    assert as_text is not None
    assert as_number is not None
    assert as_text.configuration.trial_ids == as_number.configuration.trial_ids
    with pytest.raises(ValueError, match="needs a unit: 24GiB"):
        run.recommend(memory=24)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"effective_batch": 0}, "effective_batch must be a whole number above zero"),
        ({"effective_batch": "64"}, "effective_batch must be a whole number above zero"),
        ({"effective_batch": 2.5}, "effective_batch must be a whole number above zero"),
        ({"objective": "dollars_per_million"}, "dollars_per_million needs price_per_hour"),
        ({"price_per_hour": float("nan")}, "price_per_hour must be a number above zero"),
        ({"price_per_hour": -1.0}, "price_per_hour must be a number above zero"),
        ({"objective": "speed"}, 'no objective "speed"; valid choices: samples_per_second'),
    ],
)
def test_run_refuses_a_wrong_question(
    run: orchestrator.Run, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises((ValueError, KeyError), match=said):
        run.recommend(**wrong)


def test_run_frontier_by_cost_needs_a_price(run: orchestrator.Run) -> None:
    with pytest.raises(ValueError, match="needs price_per_hour"):
        run.frontier(["dollars_per_million"])
    assert run.frontier(["dollars_per_million"], price_per_hour=2.0)


def test_verbs_are_functions_of_the_package_and_modules_all_the_same(
    run: orchestrator.Run,
) -> None:
    trials = [row["trial_id"] for row in run.dataset.rows if row["outcome"] == "ok"][:2]
    assert orchestrator.compare(run, RUN).matched
    assert orchestrator.explain(run, *trials) == run.explain(*trials)
    from orchestrator import recommend

    assert callable(recommend.main)
    assert "memory" in inspect.signature(orchestrator.recommend).parameters
    assert recommend is orchestrator.recommend


def test_package_lists_what_it_offers() -> None:
    assert {"sweep", "predict", "load", "recommend", "compare", "explain"} <= {*dir(orchestrator)}
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name)


@pytest.mark.parametrize("name", orchestrator.__all__)
def test_package_documents_everything_it_offers(name: str) -> None:
    from orchestrator import api

    documented = getattr(api, name)
    assert name == "__version__" or len(inspect.getdoc(documented) or "") > 20


def test_run_plots_its_frontier(run: orchestrator.Run, tmp_path: Path) -> None:
    picture = run.plot()
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert picture.save(tmp_path / "frontier.png").read_bytes() == picture.png


def test_sweep_of_a_wrong_configuration_raises_before_anything_runs(tmp_path: Path) -> None:
    from orchestrator.planning.config import ConfigError

    (tmp_path / "sweep.yaml").write_text(
        "model: {task: causal-lm, architecture: gpt2}\ndata: {file: {path: none.jsonl}}\n"
    )
    with pytest.raises(ConfigError, match="there is no file"):
        orchestrator.sweep(tmp_path / "sweep.yaml")
    with pytest.raises(ConfigError, match="there is no file"):
        orchestrator.predict(tmp_path / "sweep.yaml")


def test_predict_with_an_unknown_id_beside_a_known_one_raises(tmp_path: Path) -> None:
    config = tmp_path / "sweep.yaml"
    config.write_text("model: {task: causal-lm, architecture: gpt2}\n")
    (trial,) = plan(load_config(config)).trials
    with pytest.raises(ValueError, match="no trial ffffffffffff in this plan"):
        orchestrator.predict(config, trials=[trial.trial_id[:6], "f" * 12])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("ray_session")
def test_sweep_returns_the_run_that_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mini.yaml").write_text(
        "model: {task: sequence-classification, architecture: bert, config: {hidden_size: 32, "
        "num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 64, vocab_size: 128, "
        "max_position_embeddings: 16}}\n"
        "data: {synthetic: {sequence_length: 8, samples: 8}}\n"
        "measure: {warmup_steps: 1, steps: 2}\n"
    )
    predicted = orchestrator.predict("mini.yaml")
    assert len(predicted.to_pandas()) == len(predicted) == 1
    assert "allocated" in repr(predicted)
    measured = orchestrator.sweep("mini.yaml", output="here", time_budget="5m")
    assert len(measured.to_pandas()) == 1
    assert (tmp_path / "here" / "report.html").exists()


def test_package_has_no_other_attributes(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = orchestrator.nothing
    with pytest.raises(FileNotFoundError):
        orchestrator.load(tmp_path / "nowhere")


def test_run_frontier_and_answers_leave_out_what_trains_wrongly(run: orchestrator.Run) -> None:
    assert any(own.trains_wrongly for own in run.configurations)
    assert not any(own.trains_wrongly for own in run.frontier(all_recipes=True))
    answer = run.recommend(memory_bytes=8 * 2**30, effective_batch=4, all_recipes=True)
    assert answer.best is not None
    assert not answer.best.configuration.trains_wrongly
    assert answer.recommendation.left_out.count > 0
