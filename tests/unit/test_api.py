"""``orchestrator.api``: every verb as a function, and a run that answers questions."""

import inspect
import shutil

import pytest
import yaml

import orchestrator
from orchestrator import api
from orchestrator.cli import VERBS
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.conftest import TINY_CONFIG
from tests.support.commands import ROOT, python

RUN = ROOT / "docs" / "results" / "2026-11-21-docs_table-h200"


@pytest.fixture(scope="module")
def run() -> api.Run:
    """A recorded run."""
    return api.load(RUN)


def test_run_tables_have_one_row_per_trial(run):
    assert run.to_arrow().num_rows == len(run.dataset.rows) == len(run.to_pandas())
    assert len(repr(run)) < 200


def test_run_frontier_of_more_objectives_contains_the_plain_one(run):
    plain = {run.label(own) for own in run.frontier()}
    wider = {run.label(own) for own in run.frontier(["samples_per_second", "joules_per_sample"])}
    assert plain <= wider


def test_run_frontier_has_one_training_recipe_unless_asked(run):
    assert {own.training_recipe for own in run.frontier()} == {run.results.recipe}
    assert len({own.training_recipe for own in run.frontier(all_recipes=True)}) > 1


def test_run_shows_its_frontier_in_a_notebook(run):
    shown = run._repr_html_()
    assert all(run.label(own) in shown for own in run.frontier())


def test_run_recommends_and_exports(run, tmp_path):
    answer = run.recommend(memory_bytes=8 * 2**30)
    label = run.label(answer.best.configuration)
    assert label in str(answer)
    assert label in answer._repr_html_()
    assert tmp_path / "train.py" in run.export(answer.best, tmp_path)


def test_run_compared_with_itself_has_no_change(run):
    assert not [change for change in run.compare(run).changes if change.is_regression]


def test_run_recommends_for_a_size_as_people_write_it(run):
    as_text = api.recommend(RUN, memory="8GiB").best
    as_number = run.recommend(memory_bytes=8 * 2**30).best
    assert as_text.configuration.trial_ids == as_number.configuration.trial_ids
    with pytest.raises(ValueError, match="needs a unit: 24GiB"):
        run.recommend(memory=24)
    assert run.recommend(memory_bytes="8GiB").best == as_number


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
def test_run_refuses_a_wrong_question(run, wrong, said):
    with pytest.raises(ValueError, match=said):
        run.recommend(**wrong)


def test_answer_is_exported_as_its_best(run, tmp_path):
    answer = run.recommend(memory="8GiB")
    assert run.export(answer, tmp_path / "answer") == tuple(
        tmp_path / "answer" / path.name for path in run.export(answer.best, tmp_path / "best")
    )
    with pytest.raises(FileExistsError, match="force=True"):
        run.export(answer, tmp_path / "answer")
    with pytest.raises(ValueError, match="no measured configuration meets"):
        run.export(run.recommend(memory="1MiB"), tmp_path / "none")


def test_configuration_of_the_frontier_is_exported(run, tmp_path):
    fastest = run.frontier()[-1]
    run.export(fastest, tmp_path)
    arguments = yaml.safe_load((tmp_path / "training_arguments.yaml").read_text())
    assert arguments["per_device_train_batch_size"] == fastest.micro_batch
    with pytest.raises(TypeError, match=r"answer or one of run.*not 'a1b2'"):
        run.export("a1b2", tmp_path)


def test_load_is_there_after_importing_orchestrator_alone():
    code = f"import orchestrator; print(orchestrator.load({str(RUN)!r}).name, orchestrator.api)"
    assert python("-c", code, check=True).stdout
    assert not hasattr(orchestrator, "lod")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("runs/bert-smal", 'no folder runs/bert-smal; did you mean "runs/bert_small"'),
        ("notes.txt", "notes.txt is a file"),
        ("empty", "trials.parquet"),
    ],
)
def test_load_of_something_else_names_what_it_is(name, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/bert_small", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "runs/bert_small/run.json").write_text("{}")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match=said):
        api.load(name)


def test_run_frontier_by_cost_needs_a_price(run):
    with pytest.raises(ValueError, match="needs price_per_hour"):
        run.frontier(["dollars_per_million"])
    assert run.frontier(["dollars_per_million"], price_per_hour=2.0)


def test_verbs_take_a_run_its_folder_or_its_records(run):
    trials = [row["trial_id"] for row in run.dataset.rows if row["outcome"] == "ok"][:2]
    assert api.compare(run, RUN).matched
    assert api.explain(run, *trials) == run.explain(*trials)


def test_every_verb_is_a_function():
    assert {*VERBS, "load"} <= {*api.__all__}


@pytest.mark.parametrize("name", api.__all__)
def test_interface_documents_everything_it_offers(name):
    assert name == "__version__" or len(inspect.getdoc(getattr(api, name)) or "") > 20


def test_machine_and_configurations_have_functions(tmp_path):
    assert api.doctor(address="local")[0]["findings"]
    assert api.init("quickstart", tmp_path / "mine.yaml")[0] == tmp_path / "mine.yaml"
    with pytest.raises(LookupError, match='no configuration "quickstar"; did you mean'):
        api.init("quickstar")
    assert "complete" in api.completion("bash")


def test_report_writes_the_pages_of_a_run(tmp_path):
    shutil.copytree(RUN, tmp_path / "run")
    assert tmp_path / "run" / "report.html" in api.report(tmp_path / "run")


def test_run_plots_its_frontier(run, tmp_path):
    picture = run.plot()
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert picture.save(tmp_path / "frontier.png").read_bytes() == picture.png


@pytest.mark.parametrize("verb", [api.sweep, api.tune, api.batch_size])
def test_option_that_python_does_not_have_starts_no_measurement(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match="no option dry_run; valid choices: output, time_budget"):
        verb(yaml.safe_load(TINY_CONFIG), dry_run=True)
    with pytest.raises(TypeError, match='no option time_bugdet; did you mean "time_budget"'):
        verb(yaml.safe_load(TINY_CONFIG), time_bugdet="1m")
    assert not list(tmp_path.iterdir())


def test_sweep_of_a_wrong_configuration_raises_before_anything_runs(tmp_path):
    from orchestrator.planning.config import ConfigError

    (tmp_path / "sweep.yaml").write_text(
        "model: {task: causal-lm, architecture: gpt2}\ndata: {file: {path: none.jsonl}}\n"
    )
    with pytest.raises(ConfigError, match="there is no file"):
        api.sweep(tmp_path / "sweep.yaml")
    with pytest.raises(ConfigError, match="there is no file"):
        api.predict(tmp_path / "sweep.yaml")


def test_configuration_may_be_a_mapping(tmp_path, monkeypatch):
    from orchestrator.planning.config import ConfigError

    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").touch()
    given = yaml.safe_load(TINY_CONFIG)
    assert len(api.predict(given)) == 1
    data = {"file": {"path": tmp_path / "none.jsonl"}}
    with pytest.raises(ConfigError, match=r"^configuration: data.file.path: there is no file"):
        api.sweep({**given, "data": data})


def test_predict_with_an_unknown_id_beside_a_known_one_raises(tmp_path):
    config = tmp_path / "sweep.yaml"
    config.write_text("model: {task: causal-lm, architecture: gpt2}\n")
    (trial,) = plan(load_config(config)).trials
    with pytest.raises(ValueError, match="no trial ffffffffffff in this plan"):
        api.predict(config, trials=[trial.trial_id[:6], "f" * 12])


@pytest.mark.parametrize("memory", ["11GiB", ["11GiB"]])
def test_predict_returns_the_predictions_of_a_plan(memory, tmp_path):
    (tmp_path / "mini.yaml").write_text(TINY_CONFIG)
    predicted = api.predict(tmp_path / "mini.yaml", memory=memory)
    assert "11GiB" in repr(predicted)
    assert len(predicted.to_pandas()) == len(predicted) == 1
    assert isinstance(predicted.to_json()[0]["choices"]["micro_batch"], int)
    assert "the smallest card" in repr(predicted)
