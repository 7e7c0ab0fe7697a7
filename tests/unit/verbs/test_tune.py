"""The tune verb's command line, and what it prints of its space."""

import json
from pathlib import Path

import pytest

from orchestrator import tune
from orchestrator.tune import TuneVerbOptions, command_line
from orchestrator.units import GIB
from tests.support.config_files import MODEL, config_of


@pytest.fixture
def config(tmp_path: Path) -> Path:
    config_of(tmp_path)
    return tmp_path / "sweep.yaml"


def test_tune_options_read_sizes_minutes_and_recipe(config):
    arguments = [str(config), "--memory", "40GiB,24GiB", "--gpu-minutes", "2", "--recipe", "any"]
    options = TuneVerbOptions(**vars(command_line().parse_args(arguments)))
    assert options.goal.budgets == (24 * GIB, 40 * GIB)
    assert options.gpu_minutes == 2
    assert options.goal.recipe == "any"


@pytest.mark.parametrize(
    "wrong", [["--memory", "24"], ["--gpu-minutes", "0"], ["--gpu-minutes", "nan"]]
)
def test_tune_with_a_wrong_option_ends_with_a_usage_error(config, wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        command_line().parse_args([str(config), *wrong])
    assert caught.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_tune_dry_run_lists_the_space_and_what_is_not_tried(config, capsys):
    assert tune.main([str(config), "--dry-run", "--json", "--effective-batch", "8"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["considered"] > 100
    assert document["axes"]["micro_batch"] == [1, 2, 4, 8]
    assert document["not_tried"]["adapter"]["lora_r8"]
    assert "sharding" not in document["axes"]
    assert tune.main([str(config), "--dry-run", "--json", "--gpus", "2"]) == 0
    assert document["axes"] != (shared := json.loads(capsys.readouterr().out)["axes"])
    assert "ddp" in shared["sharding"]
    config.write_text(MODEL + "axes: {micro_batch: [1, 2]}\n")
    assert tune.main([str(config), "--dry-run", "--effective-batch", "8"]) == 0
    printed = capsys.readouterr()
    assert "sweeps no axes of this file; its training is that with " in printed.err
    _, _, not_tried = printed.out.partition("not tried (--json")
    lines = not_tried.splitlines()[1:]
    assert len({line.partition(":")[0] for line in lines}) == len(lines) < 20
    (unsuited,) = [line for line in lines if "does not go with this model" in line]
    assert "experts (eager, batched_mm, grouped_mm and 2 more)" in unsuited
    (rare,) = [line for line in lines if "rarely worth a trial" in line]
    assert "optimizer (adamw_foreach, adamw_forloop), activations (checkpoint_reentrant" in rare


def test_dry_run_names_packages_that_loggers_and_exported_files_lack(config, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    own = "training_arguments: {report_to: [mlflow, none]}\nloggers: [wandb]\n"
    config.write_text(f"{MODEL}{own}")
    assert tune.main([str(config), "--dry-run"]) == 0
    notes = capsys.readouterr().err
    assert "note: loggers: wandb needs the package wandb: pip install wandb\n" in notes
    exported = "report_to: to train with the exported files, mlflow needs the package mlflow: pip"
    assert f"note: {exported}" in notes
    assert tune.main([str(config)]) == 2
    assert (
        "\nloggers: wandb needs the package wandb: pip install wandb\n" in capsys.readouterr().err
    )
