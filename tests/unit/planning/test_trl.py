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


@pytest.mark.parametrize(
    ("axes", "rule"),
    [
        ("{loop: trl_sft, loss: chunked}", "trl_computes_the_loss"),
        ("{loop: trl_sft, attention: sdpa_efficient}", "trl_needs_the_mask"),
        ("{loop: trl_dpo, loss: chunked}", "trl_computes_the_loss"),
        ("{loop: trl_dpo, batching: padding_free}", "preference_batches_are_padded"),
        ("{loop: trl_dpo, batching: packed}", "preference_batches_are_padded"),
        ("{loop: trl_dpo, batching: group_by_length}", "preference_batches_are_padded"),
        ("{loop: trl_dpo, activations: checkpoint_selective}", "preferences_checkpoint_whole"),
        ("{loop: trl_dpo, activations: checkpoint_every_2}", "preferences_checkpoint_every"),
        ("{loop: trl_dpo, activations: checkpoint_offload}", "preferences_checkpoint_on"),
        ("{loop: trl_dpo, offload: zero2}", "preferences_without_deepspeed"),
        ("{loop: trl_dpo, base: bnb_4bit}", "base_needs_adapter"),
        ("{loop: {trl_dpo: {sync_ref_model: true}}, adapter: lora_r8}", "synced_reference"),
    ],
)
def test_plan_rules_out_what_trl_cannot_do(axes, rule, tmp_path):
    (record,) = _plan(f"axes: {axes}\n", tmp_path).ruled_out
    assert record.rule.startswith(rule)


def test_dpo_is_a_training_of_its_own_whatever_computes_the_reference(tmp_path):
    assert _recipe("axes: {loop: trl_dpo}\n", tmp_path) == {"loop": "trl_dpo"}
    same = "axes: {loop: {trl_dpo: {precompute_ref_log_probs: true, activation_offloading: true}}}"
    assert _recipe(same, tmp_path) == {"loop": "trl_dpo"}
    other = "axes: {loop: {trl_dpo: {beta: 0.5, precompute_ref_log_probs: true}}}"
    assert _recipe(other, tmp_path) == {"loop": "trl_dpo(beta=0.5)"}


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ("max_length: 5", "cannot be set here: data.file.max_length"),
        ("padding_free: true", "TRL has taken it out"),
        ("precompute_ref_batch_size: 64", "the micro-batch decides it"),
        ("beta: high", "DPOConfig takes float here"),
        ("loss_type: sigmod", 'does not know "sigmod" here'),
        ("loss_type: [ipo, sigmod]", "DPOConfig takes"),
        ("betta: 1.0", "has no such parameter"),
        ("loss_weights: [1.0, 2.0]", "has 2 weights, and loss_type has 1 losses"),
        ("loss_type: exo_pair", "needs a label_smoothing above 0"),
        ("loss_type: nca_pair, f_divergence_type: forward_kl", "has no form for"),
        ("loss_type: aot, use_weighting: true", "sorts the pairs"),
        ("loss_type: robust, label_smoothing: 0.5", "below 0.5"),
        ("ld_alpha: 2.0", "from 0 to 1"),
        ("sync_ref_model: true, precompute_ref_log_probs: true", "only once, before"),
        ("ref_model_sync_steps: 4", "has no effect without sync_ref_model"),
    ],
)
def test_dpo_parameters_that_trl_would_refuse_are_refused_before_a_trial(
    parameters, reason, tmp_path
):
    with pytest.raises(ConfigError) as error:
        _plan(f"axes: {{loop: {{trl_dpo: {{{parameters}}}}}}}\n", tmp_path)
    assert reason in str(error.value)


def test_dpo_of_a_record_checks_its_trainer_and_parameters():
    with pytest.raises(ValueError, match="is not a preference trainer"):
        checked_dpo("../ppo", {})
    with pytest.raises(ValueError, match="may not be set here"):
        checked_dpo("dpo", {"model_init_kwargs": {}})
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        checked_dpo("dpo", {"ld_alpha": 3})
