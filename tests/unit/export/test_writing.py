"""The exported folder: nothing is overwritten, and wrong trainings are refused."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.flags import LOSS, Flag, FlagKind
from jobs.node.environment import PACKAGES
from jobs.spec import ModelSpec
from jobs.trial.requirements import DISTRIBUTIONS
from orchestrator import recommend
from orchestrator.analysis.dataset import Dataset, load_dataset
from orchestrator.analysis.recommendation.offers import candidates
from orchestrator.export import NotExportableError, export, export_candidate, writing
from tests.support.records import make_record, write_run


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """A run with one configuration that can be exported."""
    return load_dataset(write_run(tmp_path / "run", [make_record(speed=100.0)]))


def test_export_into_a_folder_with_files_writes_nothing(tiny_spec, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"already holds notes\.txt; nothing was written"):
        export(tiny_spec(), tmp_path, label="a test")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_export_with_force_replaces_its_own_names_and_no_other(tiny_spec, tmp_path):
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text("mine")
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "train.py").symlink_to(elsewhere)
    (folder / "notes.txt").write_text("mine")
    export(tiny_spec(), folder, label="a test", force=True)
    assert (folder / "train.py").read_text().startswith('"""Train as measured')
    assert (folder / "notes.txt").read_text() == "mine"
    assert elsewhere.read_text() == "mine"


def test_export_says_nothing_of_what_its_libraries_log(tiny_spec, tmp_path, monkeypatch, caplog):
    def script(*_: object, **__: object) -> str:
        logging.getLogger("torchao").warning("Failed to load a kernel")
        return ""

    monkeypatch.setattr(writing, "train_script", script)
    export(tiny_spec(), tmp_path / "train", label="a test")
    assert not caplog.records


def test_export_onto_a_file_is_refused_even_with_force(tiny_spec, tmp_path):
    (tmp_path / "train").write_text("mine")
    with pytest.raises(NotADirectoryError, match="is a file, not a folder"):
        export(tiny_spec(), tmp_path / "train", label="a test", force=True)


def test_recommend_export_into_the_working_folder_exits_2(dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("mine")
    assert recommend.main([str(dataset.folder), "--export", "."]) == 2
    assert "already holds run, train.py; nothing was written" in capsys.readouterr().err
    assert (tmp_path / "train.py").read_text() == "mine"
    assert recommend.main([str(dataset.folder), "--export", ".", "--force"]) == 0
    assert (tmp_path / "train.py").read_text() != "mine"


def test_recommend_says_what_it_did_with_the_users_file(tmp_path, capsys):
    record = make_record(micro_batch=8)
    model = ModelSpec(task="causal-lm", architecture="llama", config={"hidden_size": 48})
    record = replace(record, spec=replace(record.spec, model=model))
    run = str(write_run(tmp_path / "run", [record]))
    for name, size in (("same", 48), ("other", 64)):
        (tmp_path / name).mkdir()
        config = json.dumps({"model_type": "llama", "hidden_size": size})
        (tmp_path / name / "config.json").write_text(config)
        # README.md, which names this file of its own, is no source of what is said.
        own = tmp_path / name / "training_arguments.yaml"
        own.write_text("base_model: .\nmicro_batch_size: 64\nsequence_len: 8\n")
        command = [run, "--export", str(tmp_path / f"to-{name}")]
        assert recommend.main([*command, "--own-file", str(own)]) == 0
        said = capsys.readouterr().err
        notes = [line for line in said.splitlines() if own.name in line and "/" not in line]
        words = f"changed_{own.name} is your {own.name} with micro_batch_size: 8"
        assert notes[0] == f"note: {words}"
        assert all(note.startswith("note: ") for note in notes)
        assert ("trains another model than the run" in said) == (name == "other")


@pytest.mark.parametrize(
    "changes",
    [
        {"training_arguments": {"gradient_accumulation_steps": "many"}},
        {"training_arguments": {"per_device_train_batch_size": []}},
        {"training_arguments": None},
        {"model_kwargs": [1]},
        {"deepspeed": {"zero_optimization": "x"}},
        {"hooks": {"model": "lora"}},
    ],
    ids=str,
)
def test_export_of_damaged_settings_is_a_sentence(changes, tiny_spec, tmp_path):
    spec = tiny_spec()
    damaged = replace(spec, settings=replace(spec.settings, **changes))
    with pytest.raises(NotExportableError):
        export(damaged, tmp_path / "train", label="a test")
    assert not (tmp_path / "train").exists()


def test_export_lists_the_versions_that_were_measured(tiny_spec, tmp_path):
    spec = tiny_spec({"adapter": "lora_r8"})
    versions = {"torch": "2.13.0+cu130", "peft": "0.21.2", "transformers": "5; rm -rf ~"}
    export(spec, tmp_path / "train", label="a test", versions=versions)
    lines = (tmp_path / "train" / "requirements.txt").read_text().splitlines()
    always = ["torch==2.13.0", "transformers", "accelerate", "pyyaml", "datasets", "numpy"]
    assert lines[1:] == [*always, "peft==0.21.2"]
    assert json.loads((tmp_path / "train" / "training_arguments.json").read_text())


def test_export_of_a_row_with_a_secret_is_refused_without_it(tiny_spec, tmp_path):
    # An earlier version read such configurations.
    spec = tiny_spec()
    model = replace(spec.model, config={**spec.model.config, "token": "hunter2-planted"})
    with pytest.raises(NotExportableError, match=r"model\.config\.token") as error:
        export(replace(spec, model=model), tmp_path / "train", label="a test")
    assert "hunter2" not in str(error.value)
    assert not (tmp_path / "train").exists()


def test_environment_records_the_version_of_every_package_of_a_technique():
    # Without its version, requirements.txt would leave a package unpinned.
    assert set(DISTRIBUTIONS.values()) <= set(PACKAGES)


@pytest.mark.parametrize("kind", sorted(LOSS))
def test_export_of_a_configuration_with_a_loss_flag_is_refused(kind, dataset, tmp_path):
    (candidate,) = candidates(dataset.main.configurations)

    def export_with(flag: Flag) -> None:
        flagged = replace(candidate.configuration, flags=(flag,))
        export_candidate(dataset, replace(candidate, configuration=flagged), tmp_path / "train")

    with pytest.raises(NotExportableError, match="does not train as its reference does"):
        export_with(Flag(kind, 4.3))
    assert not (tmp_path / "train").exists()
    export_with(Flag(FlagKind.HOST_BOUND, 0.9))


WANTED = {"num_train_epochs": 3, "seed": 1, "report_to": "wandb", "`x`": 1, "output_dir": "out"}
LOGS = {"logging_steps": 20, "logging_first_step": True, "run_name": "mine", "project": "ours"}
WRONG_LOGS = {"logging_steps": "abc", "logging_strategy": 7, "run_name": {"a": 1}}
NOT_CARRIED = "of your own arguments, these are not carried: report_to. train.py takes"


def _exported(own: dict[str, Any], folder: Path, **options: Any) -> tuple[dict[str, Any], str]:
    """The training arguments and the README of an export of a run with the user's arguments."""
    run = write_run(folder / "run", [make_record(speed=100.0)], config={"left_aside": own})
    loaded = load_dataset(run)
    (candidate,) = candidates(loaded.main.configurations)
    export_candidate(loaded, candidate, folder / "train", **options)
    settings = json.loads((folder / "train" / "training_arguments.json").read_text())
    return settings, (folder / "train" / "README.md").read_text()


@pytest.mark.parametrize(
    ("own", "options", "epochs", "seed"),
    [
        (WANTED, {}, 3, 1),
        (WANTED, {"epochs": 2}, 2, 1),
        ({}, {}, 1, 42),
        ({"seed": -1, "num_train_epochs": "many"}, {}, 1, 42),
    ],
)
def test_export_carries_the_users_epochs_and_seed_and_names_the_rest(
    own, options, epochs, seed, tmp_path
):
    settings, readme = _exported(own, tmp_path, **options)
    carried = (settings["num_train_epochs"], settings["seed"], settings["report_to"])
    assert carried == (epochs, seed, "none")
    assert (NOT_CARRIED in readme) is (own is WANTED)
    assert "`x`" not in readme


@pytest.mark.parametrize(
    ("steps", "options", "carried"),
    [(40, {}, 40), (40, {"epochs": 2}, None), (-1, {}, None), ("many", {}, None)],
)
def test_export_trains_as_many_steps_as_the_users_arguments(steps, options, carried, tmp_path):
    settings, readme = _exported({"max_steps": steps}, tmp_path, **options)
    assert settings.get("max_steps") == carried
    assert "these are not carried" not in readme


@pytest.mark.parametrize("report_to", ["wandb", ["mlflow", "tensorboard"], ()])
def test_reports_are_those_that_the_caller_names_and_logs_those_of_the_run(report_to, tmp_path):
    own = {"report_to": "comet_ml", **LOGS}
    settings, readme = _exported(own, tmp_path, report_to=report_to)
    assert settings["report_to"] == (report_to or "none")
    assert LOGS.items() <= settings.items()
    assert ("not carried: report_to" in readme) is not bool(report_to)
    assert ("reports to" in readme) is bool(report_to)


def test_logs_of_a_run_that_no_training_would_take_are_left_out(tmp_path):
    settings, _ = _exported(WRONG_LOGS, tmp_path)
    assert not WRONG_LOGS.keys() & settings.keys()
