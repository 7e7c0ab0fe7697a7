"""The facts of the installed libraries are those that the libraries have."""

import dataclasses
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
import pytest

from jobs.library_facts.collected import _liger_model_types
from jobs.library_facts.model_size import size_of
from jobs.library_facts.value_types import accepts, described_type, listed_values
from jobs.spec import ModelSpec
from orchestrator.planning.choices.arguments import argument_names
from orchestrator.planning.library_facts import facts
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration, model_types
from tests.support.commands import ROOT

BITSANDBYTES = "transformers.utils.quantization_config:BitsAndBytesConfig"


@pytest.mark.slow
def test_every_key_and_field_of_transformers_is_known():
    import transformers

    fields = dataclasses.fields(transformers.TrainingArguments)
    assert {field.name for field in fields if field.init} <= (argument_names() or set())
    assert model_types().keys() == set(transformers.CONFIG_MAPPING.keys())
    for model_type in ("bert", "gpt2", "llama", "clip", "qwen2_5_vl", "t5"):
        real = transformers.CONFIG_MAPPING[model_type]
        configuration = ModelConfiguration.of(ModelSpec(task="causal-lm", architecture=model_type))
        names = {field.name for field in dataclasses.fields(real)} | {*real.attribute_map}
        assert names <= configuration.known.keys
        assert configuration.vocabulary == getattr(real(), "vocab_size", None)


@pytest.mark.parametrize(
    ("reference", "parameter", "text"),
    [
        ("peft.tuners.lora.config:LoraConfig", "r", "int"),
        ("peft.tuners.lora.config:LoraConfig", "target_modules", "Optional[Union[list[str], str]]"),
        (BITSANDBYTES, "llm_int8_threshold", "float"),
        ("torch.optim._muon:Muon", "momentum", "float"),
        ("trl.trainer.dpo_config:DPOConfig", "beta", "float"),
    ],
)
def test_parameters_have_their_librarys_types(reference, parameter, text):
    assert facts()["parameters"][reference][parameter]["text"] == text


def test_settings_of_the_trainer_are_no_parameters_of_trl():
    for name in ("sft_config:SFTConfig", "dpo_config:DPOConfig"):
        assert "max_steps" not in facts()["parameters"][f"trl.trainer.{name}"]


def test_liger_is_read_without_an_import(tmp_path, monkeypatch):
    package = tmp_path / "liger_kernel"
    (package / "transformers").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    table = 'MODEL_TYPE_TO_APPLY_LIGER_FN = {\n    "llama": apply_to_llama,\n}\n'
    (package / "transformers/monkey_patch.py").write_text(table)
    monkeypatch.syspath_prepend(tmp_path)
    assert _liger_model_types() == ["llama"]


@pytest.mark.parametrize(
    ("kind", "valid", "wrong"),
    [
        (int, [1], [1.0, True, "1", None]),
        (float, [1, 1.5], [True, "1"]),
        (list[str] | str | None, [["a"], "a", None], [[1], 1, {}]),
        (bool | Literal["gaussian"], [True, "gaussian"], ["gausian", 1]),
        (Literal[1], [1], [True, 1.0]),
        (tuple[float, float], [[1, 2]], ["12"]),
        (dict[str, int], [{"a": 1}], [{"a": "b"}, []]),
        (Annotated[Mapping[str, Any], "a note"], [{"a": [1]}], ["a"]),
        (dataclasses.Field, [1, "a", None], []),
    ],
)
def test_value_of_the_type_is_accepted(kind, valid, wrong):
    alternatives = described_type(kind)["accepts"]
    assert all(accepts(alternatives, value) for value in valid)
    assert not any(accepts(alternatives, value) for value in wrong)


def test_listed_values_are_found_inside_lists():
    kind = Literal["ipo"] | list[Literal["ipo", "apo"]]
    assert list(listed_values(described_type(kind)["accepts"])) == ["ipo", "ipo", "apo"]


ASK = """
from orchestrator.planning.library_facts import answer_of
config = {"num_hidden_layers": 10**8}
model = {"task": "sequence-classification", "architecture": "bert", "config": config}
answer_of({"model": model}, "counting", print)
"""
"""Builds a model of so many layers that it takes longer than any test."""


def _has_torch(process: psutil.Process) -> bool:
    try:
        return "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return False


def test_counter_of_a_killed_command_ends():
    with subprocess.Popen([sys.executable, "-c", ASK], cwd=ROOT) as asker:
        while not (children := psutil.Process(asker.pid).children()) or not _has_torch(children[0]):
            assert asker.poll() is None
            time.sleep(0.05)
        asker.kill()
    _, alive = psutil.wait_procs(children, timeout=120.0)
    for process in alive:
        process.kill()
    assert alive == []


@pytest.mark.parametrize(
    ("task", "architecture", "said"),
    [
        ("seq2seq-lm", "whisper", "tasks for it: causal-lm, speech-seq2seq"),
        ("sequence-classification", "wav2vec2", "tasks for it: speech-ctc"),
        (
            "sequence-classification",
            "audio-spectrogram-transformer",
            "a model of sound, which none of the tasks is: ",
        ),
        ("seq2seq-lm", "vit", "tasks for it: image-classification"),
        ("masked-lm", "llama", "tasks for it: sequence-classification"),
    ],
)
def test_task_that_a_model_is_not_made_for_is_a_mistake(task, architecture, said):
    assert said in size_of(ModelSpec(task=task, architecture=architecture))["mistake"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"hidden_size": 100}, "not a multiple of the number of attention heads"),
        ({"is_decoder": "maybe"}, "'is_decoder' expected bool"),
    ],
)
def test_value_that_the_model_refuses_is_a_mistake(wrong, said):
    model = ModelSpec(task="sequence-classification", architecture="bert", config=wrong)
    assert said in size_of(model)["mistake"]
