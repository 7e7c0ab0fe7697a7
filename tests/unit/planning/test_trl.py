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
    """That of the last trial."""
    return _plan(text, folder).trials[-1].training_recipe.by_axis


def test_trl_is_compared_with_the_trainer_only_on_the_same_rows(tmp_path):
    assert _recipe("axes: {loop: trl_sft}\n", tmp_path) == {}
    offloads = "axes: {loop: {trl_sft: {activation_offloading: true}}}\n"
    assert _recipe(offloads, tmp_path) == {}
    answers = "axes: {loop: {trl_sft: {assistant_only_loss: true}}}\n"
    assert _recipe(answers, tmp_path) == {"loop": "trl_sft(assistant_only_loss=true)"}
    packed = "baseline: {loop: %s}\naxes: {loop: trl_sft, batching: packed}\n"
    texts = "data: {file: {path: x.jsonl, tokenizer: t}}\n" + packed
    for rows in (packed, texts):
        beside = _recipe(rows % "trainer", tmp_path)
        assert beside == {"loop": "trl_sft", "batching": "packed"}
        # Where it is the user's own loop, its rows are theirs.
        assert _recipe(rows % "trl_sft", tmp_path) == {"batching": "packed"}


DECIDED = "training_arguments: {gradient_checkpointing: false, bf16: false}\n"
WRITTEN = "training_arguments: trainer.json\n"
TRL_DEFAULTS = ("checkpoint", "bf16")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("baseline: {loop: trl_sft}\n", TRL_DEFAULTS),
        ("axes: {loop: [trl_dpo, {trl_dpo: {beta: 0.2}}]}\n", TRL_DEFAULTS),
        ("baseline: {loop: trl_sft, precision: fp32}\n", ("checkpoint", "fp32")),
        ("baseline: {loop: trl_sft}\naxes: {activations: [keep, checkpoint]}\n", ("keep", "bf16")),
        (f"baseline: {{loop: trl_sft}}\n{DECIDED}", ("keep", "fp32")),
        (f"baseline: {{loop: trl_sft}}\n{WRITTEN}", ("keep", "fp32")),
        ("axes: {loop: [trainer, trl_sft]}\n", ("keep", "fp32")),
    ],
)
def test_baseline_of_trls_loops_has_trls_own_defaults_where_the_user_says_nothing(
    text, expected, tmp_path
):
    # A file that the Trainer wrote has every field, false ones too.
    written = '{"gradient_checkpointing": false, "bf16": false}'
    (tmp_path / "trainer.json").write_text(written)
    config = config_of(tmp_path, text)
    found = (config.baseline["activations"], config.baseline["precision"])
    assert found == expected
    assert any("TRL's own" in note for note in config.notes) is (
        found in (TRL_DEFAULTS, ("checkpoint", "fp32")) or "axes: {activ" in text
    )


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
