"""TRL's loop in a plan: what it takes, what it refuses, and what it is compared with."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import UnsupportedError
from jobs.loops.trl.parameters import checked
from jobs.spec import TrialSpec
from jobs.techniques import AXES
from jobs.trial.requirements import unmet_reason
from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.unsupported import unpredictable
from tests.conftest import build_tiny_spec

HEAD = "model: {task: causal-lm, architecture: llama}\n"


def _load(text: str, folder: Path) -> Any:
    path = folder / "sweep.yaml"
    path.write_text(HEAD + text)
    return plan(load_config(path))


def _recipe(text: str, folder: Path) -> Any:
    (trial,) = _load(text, folder).trials
    return trial.training_recipe.by_axis


@pytest.mark.parametrize(
    ("axes", "rule"),
    [
        ("{loop: trl_sft, loss: chunked}", "trl_computes_the_loss"),
        ("{loop: trl_sft, attention: sdpa_efficient}", "trl_needs_the_mask"),
    ],
)
def test_plan_rules_out_what_trl_would_leave_out(axes: str, rule: str, tmp_path: Path) -> None:
    (record,) = _load(f"axes: {axes}\n", tmp_path).ruled_out
    assert record.rule == rule


def test_trl_is_compared_with_the_trainer_only_on_the_same_rows(tmp_path: Path) -> None:
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
def test_trl_parameter_that_another_key_decides_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be set here"):
        _load(f"axes: {{loop: {{trl_sft: {{{name}: x}}}}}}\n", tmp_path)
    # A record may say so without a plan.
    with pytest.raises(ValueError, match="is not taken"):
        checked({name: "x"})


def test_trl_packing_that_mixes_rows_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="lets rows of a block attend to each other"):
        checked({"packing_strategy": "wrapped"})


def test_trl_without_the_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    spec: TrialSpec = build_tiny_spec()
    for requirement in ("package:trl", "trl>=1.16"):
        reason = unmet_reason(requirement, spec)
        assert reason == ("the package trl is not installed: pip install 'training-frontier[sft]'")
        assert requirement in AXES["loop"].variants["trl_sft"].requires


def test_memory_of_trls_loop_is_unknown() -> None:
    assert "TRL" in unpredictable(build_tiny_spec({"loop": "trl_sft"}))
