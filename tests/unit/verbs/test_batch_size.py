"""The batch-size verb without a cluster: technique sets, options, mistakes, and a light start."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.isolation import prewarm
from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator import argument_types, batch_size, cli
from orchestrator.planning import library_facts
from orchestrator.planning.config import load_config
from orchestrator.planning.technique_sets import sets_to_tune, technique_sets
from tests.support.commands import ROOT
from tests.support.config_files import SHIPPED, config_of
from tests.support.golden import assert_golden

RATES = ", ".join(f"{{learning_rate: 0.{digit}}}" for digit in range(1, 10))
SINGLES = "{micro_batch: 4}, {micro_batch: 1, accumulation: 4}, {optimizer: sgd}"


@pytest.mark.parametrize(
    ("text", "every", "named", "labels"),
    [
        ("", False, [], ["baseline"]),
        ("axes: {precision: [bf16, fp32], micro_batch: [1, 2]}", False, [], ["bf16"]),
        ("axes: {precision: [bf16, fp32]}", False, ["adapter=lora_r8"], ["bf16 · lora_r8"]),
        ("axes: {precision: [bf16, fp32], accumulation: [1, 2]}", True, [], ["bf16", "fp32"]),
        (f"trials: [{SINGLES}]", False, [], ["adamw_torch_fused", "sgd"]),
        (f"trials: [{RATES}, {RATES.replace('0.', '1.')}]", False, [], ["learning_rate=default"]),
        ("axes: {effective_batch: [64], precision: [bf16]}", False, [], ["baseline"]),
    ],
)
def test_technique_sets_that_are_tuned(text, every, named, labels, tmp_path):
    config = config_of(tmp_path, text, choices=named)
    sets, _ = sets_to_tune(config, every=every, named=named)
    assert [technique_set.label for technique_set in sets] == labels


@pytest.mark.parametrize(("asked", "reached"), [(None, 64), (32, 32)])
def test_effective_batch_is_the_configurations_unless_another_is_asked_for(
    asked, reached, tmp_path
):
    config = config_of(tmp_path, baseline={"effective_batch": 64})
    (technique_set,), batch = sets_to_tune(config, asked)
    assert batch == reached
    assert not {"effective_batch", "accumulation"} & technique_set.choices.keys()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_config_can_be_tuned(path):
    config = load_config(path)
    for technique_set in technique_sets(config):
        made = technique_set.trial(config, 3, 5, has_gpu=True)
        assert (made.spec if isinstance(made, TrialRecord) else made).effective_batch == 15


def trial(
    folder: Path, micro_batch: int, accumulation: int, *, has_gpu: bool = True, **keys: Any
) -> TrialSpec:
    config = config_of(folder, **keys)
    (technique_set,) = technique_sets(config)
    made = technique_set.trial(config, micro_batch, accumulation, has_gpu=has_gpu)
    assert isinstance(made, TrialSpec)
    return made


def test_trial_of_a_set_is_measured_briefly(tmp_path):
    keys = {
        "axes": {"effective_batch": [64], "precision": ["bf16"]},
        "measure": {"steps": "epoch", "repeats": 3},
    }
    made = trial(tmp_path, 6, 2, **keys)
    assert (made.micro_batch, made.accumulation, made.repeat) == (6, 2, 0)
    assert made.settings.training_arguments["bf16"] is True
    measure = made.measure
    assert (measure.steps, measure.relative_error, measure.inspect) == (5, 0.01, True)
    assert trial(tmp_path, 248, 1, **keys).measure.warmup_steps < made.measure.warmup_steps
    assert not trial(tmp_path, 248, 1, **keys).measure.inspect  # it does not depend on the size
    on_cpu = trial(tmp_path, 248, 1, has_gpu=False, **keys)
    assert on_cpu.measure.inspect  # it measures memory there


def test_rule_may_forbid_accumulation(tmp_path):
    config = config_of(tmp_path, baseline={"optimizer": "lomo"})
    (technique_set,) = technique_sets(config)
    made = technique_set.trial(config, 4, 2, has_gpu=True)
    assert isinstance(made, TrialRecord)
    assert made.rule == "lomo_without_accumulation"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory-margin", "150%"], "must be a share or a size such as 5% or 4GiB, not 150%"),
        (["--memory-margin", "much"], "must be a share or a size such as 5% or 4GiB, not much"),
        (["--effective-batch", "0"], "must be an integer from 1, not 0"),
        (["--max-micro-batch", "2.5"], "must be an integer from 1, not 2.5"),
        (["--tolerance", "all"], "must be a share below 1 such as 2% or 0.02, not all"),
        (["--time-budget", "soon"], "must be a time above zero"),
        (["--set", "precision=fp7"], 'precision: "fp7" is not known'),
        (
            ["--gpus", "2", "--set", "sharding=ddp", "--effective-batch", "8"],
            "an effective batch of several GPUs is found by tune",
        ),
        (["--resume", "--output", "nothing"], "nothing: no run to resume"),
    ],
)
def test_mistakes_are_answered_before_anything_runs(
    options, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    # No process is started for what nothing will need.
    monkeypatch.setenv(prewarm.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(library_facts, "_asked", lambda questions: [{"reason": "asked"}])
    config_of(tmp_path)
    try:
        status = batch_size.main(["sweep.yaml", *options])
    except SystemExit as exit:
        status = int(exit.code or 0)
    assert status == cli.EXIT_USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "margin"), [("5%", 0.05), ("0", 0.0), ("0.1", 0.1), ("4GiB", 4 * 2.0**30)]
)
def test_margin_is_a_share_or_a_size(text, margin):
    assert argument_types.margin(text) == margin


def test_dry_run_lists_the_sets_and_what_follows(tmp_path, capsys):
    # A shipped model, whose parameters need no count.
    shipped = yaml.safe_load((ROOT / "configs/causal_lm.yaml").read_text())["model"]
    config_of(tmp_path, model=shipped, trials=[{}, {"optimizer": "sgd"}])
    options = ["--dry-run", "--effective-batch", "96", "--max-micro-batch", "48"]
    assert batch_size.main([str(tmp_path / "sweep.yaml"), *options]) == 0
    assert_golden("batch_size_plan.txt", capsys.readouterr().out)
