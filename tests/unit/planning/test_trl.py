"""TRL's loop in a plan: what it takes, what it refuses, and what it is compared with."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest

from jobs.errors import UnsupportedError
from jobs.finetuning.trl.parameters import checked_dpo, checked_sft
from jobs.spec import Choice, TrialSpec
from jobs.techniques import AXES
from jobs.trial.requirements import unmet_reason
from orchestrator.planning.config import ConfigError
from orchestrator.planning.plan import Plan, plan
from tests.conftest import build_tiny_spec
from tests.support.config_files import config_of


def _plan(text: str, folder: Path) -> Plan:
    return plan(config_of(folder, text))


def _recipe(text: str, folder: Path) -> Mapping[str, Choice]:
    (trial,) = _plan(text, folder).trials
    return trial.training_recipe.by_axis


def test_trl_is_compared_with_the_trainer_only_on_the_same_rows(tmp_path):
    assert _recipe("axes: {loop: trl_sft}\n", tmp_path) == {}
    offloads = "axes: {loop: {trl_sft: {activation_offloading: true}}}\n"
    assert _recipe(offloads, tmp_path) == {}
    answers = "axes: {loop: {trl_sft: {assistant_only_loss: true}}}\n"
    assert _recipe(answers, tmp_path) == {"loop": "trl_sft(assistant_only_loss=true)"}
    packed = _recipe("axes: {loop: trl_sft, batching: packed}\n", tmp_path)
    assert packed == {"loop": "trl_sft", "batching": "packed"}
    texts = "data: {file: {path: x.jsonl, tokenizer: t}}\naxes: {loop: trl_sft}\n"
    assert _recipe(texts, tmp_path) == {"loop": "trl_sft"}


@pytest.mark.parametrize("name", ["chat_template_path", "model_init_kwargs", "max_length", "bf16"])
def test_trl_parameter_that_another_key_decides_is_refused(name, tmp_path):
    with pytest.raises(ConfigError, match="cannot be set here"):
        _plan(f"axes: {{loop: {{trl_sft: {{{name}: x}}}}}}\n", tmp_path)
    # A record may say so without a plan.
    with pytest.raises(ValueError, match="may not be set here"):
        checked_sft({name: "x"})


def test_trl_packing_that_mixes_rows_is_unsupported():
    with pytest.raises(UnsupportedError, match="rows of a block attend to each other"):
        checked_sft({"packing_strategy": "wrapped"})


def test_trl_without_the_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    spec: TrialSpec = build_tiny_spec()
    for requirement in ("package:trl", "trl>=1.16"):
        reason = unmet_reason(requirement, spec)
        assert reason == ("the package trl is not installed: pip install 'training-frontier[sft]'")
        assert requirement in AXES["loop"].variants["trl_sft"].requires


def test_dpo_is_a_training_of_its_own_whatever_computes_the_reference(tmp_path):
    assert _recipe("axes: {loop: trl_dpo}\n", tmp_path) == {"loop": "trl_dpo"}
    same = "axes: {loop: {trl_dpo: {precompute_ref_log_probs: true, activation_offloading: true}}}"
    assert _recipe(same, tmp_path) == {"loop": "trl_dpo"}
    other = "axes: {loop: {trl_dpo: {beta: 0.5, precompute_ref_log_probs: true}}}"
    assert _recipe(other, tmp_path) == {"loop": "trl_dpo(beta=0.5)"}


def test_dpo_of_a_record_checks_its_trainer_and_parameters():
    with pytest.raises(ValueError, match="is not a preference trainer"):
        checked_dpo("../ppo", {})
    with pytest.raises(ValueError, match="may not be set here"):
        checked_dpo("dpo", {"model_init_kwargs": {}})
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        checked_dpo("dpo", {"ld_alpha": 3})
