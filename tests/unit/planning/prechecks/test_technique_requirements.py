"""Techniques that do not go with the model or the data: ruled out before any trial."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.trial.requirements import unmet_reason
from orchestrator.planning import library_facts
from orchestrator.planning.plan import Plan, plan
from orchestrator.planning.prechecks import technique_requirements
from tests.support.commands import ROOT
from tests.support.config_files import config_of

GPT2 = {"task": "causal-lm", "architecture": "gpt2"}
LENGTH = {"synthetic": {"sequence_length": 1020}}
CASES = (ROOT / "tests/golden/unmet_requirements.txt").read_text().splitlines()
"""The model | choices -> the requirement | a part of the reason."""


def _planned(folder: Path, model: dict[str, Any], choices: dict[str, Any], **keys: Any) -> Plan:
    return plan(config_of(folder, model=model, trials=[choices], **keys))


def test_model_that_finds_out_itself_whether_it_can_checkpoint_is_not_ruled_out(tmp_path):
    model = {"task": "image-classification", "architecture": "timm_wrapper"}
    assert not _planned(tmp_path, model, {"activations": "checkpoint"}).ruled_out


@pytest.mark.parametrize("case", CASES)
def test_technique_that_does_not_go_with_the_model_is_ruled_out(case, tmp_path):
    model, choices, reason = case.split(" | ")
    choices, rule = choices.split(" -> ")
    model, choices = (yaml.safe_load(f"{{{text}}}") for text in (model, choices))
    keys = {"data": LENGTH} if model["architecture"] == "gpt2" else {}
    [record] = _planned(tmp_path, model, choices, **keys).ruled_out
    assert record.rule == rule
    assert reason in record.reason


@pytest.mark.parametrize(
    "choices",
    [{"batching": "packed"}, {"adapter": "prompt_tuning(num_virtual_tokens=4)"}, {"loss": "cce"}],
)
def test_technique_that_goes_with_the_model_is_planned(choices, tmp_path):
    planned = _planned(tmp_path, GPT2, choices, data=LENGTH)
    assert planned.ruled_out == ()
    [spec] = planned.trials
    # What depends on the machine is left to the node.
    assert any(unmet_reason(each, spec) for each in ("capability>=8.0",))


@pytest.mark.parametrize(("architecture", "is_known"), [("llama", True), ("gpt2", False)])
def test_liger_kernels_are_for_the_architectures_of_its_table(
    architecture, is_known, tmp_path, monkeypatch
):
    known = {**library_facts.facts(), "liger_model_types": ["llama"]}
    monkeypatch.setattr(technique_requirements, "facts", lambda: known)
    model = {"task": "causal-lm", "architecture": architecture}
    planned = _planned(tmp_path, model, {"kernels": "liger"})
    assert bool(planned.trials) is is_known
    reasons = [record.reason for record in planned.ruled_out]
    assert reasons == ([] if is_known else ["Liger has no kernels for the architecture gpt2"])


def test_quantized_checkpoint_needs_an_adapter(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    quantized = {"model_type": "llama", "quantization_config": {"load_in_4bit": True}}
    (checkpoint / "config.json").write_text(json.dumps(quantized))
    model = {"task": "causal-lm", "name_or_path": str(checkpoint)}
    [record] = _planned(tmp_path, model, {}).ruled_out
    assert "quantized weights do not train; choose a technique of the axis adapter" in record.reason
    assert len(_planned(tmp_path, model, {"adapter": "lora_r8"}).trials) == 1


def test_packages_that_this_machine_lacks_are_named_once(tmp_path, monkeypatch):
    axes = {"micro_batch": [1, 2], "kernels": ["none", "liger"]}
    trials = plan(config_of(tmp_path, axes=axes)).trials
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert list(technique_requirements.missing_packages(trials)) == [
        "2 of 4 trials cannot run here: the package liger_kernel is not installed: "
        "pip install 'training-frontier[liger]'"
    ]
