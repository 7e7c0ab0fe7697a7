"""Techniques with parameters in a config file: read, checked and planned."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.techniques import AXES
from orchestrator.planning.plan import plan
from orchestrator.planning.problems import ConfigError
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.technique_values import read_technique

MODEL = "model: {task: causal-lm, architecture: llama}\n"
Load = Callable[[str], SweepConfig]


def problems(load: Load, text: str) -> str:
    """What is wrong with a configuration."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value)


def test_parameters_in_every_place_of_a_file_become_one_written_form(load: Load) -> None:
    config = load(
        "axes: {adapter: [lora_r8, {lora: {use_dora: true, r: 16}}]}\n"
        "trials: [{adapter: {vera: {}}}, {adapter: 'lora( r = 4 )'}]\n"
        "baseline: {adapter: {lora: {r: 2}}}\n"
        "exclude: [{adapter: lora_r8}]\n"
    )
    adapters = [spec.choices["adapter"] for spec in plan(config).trials]
    assert adapters == ["lora(r=16,use_dora=true)", "vera", "lora(r=4)"]
    assert config.baseline["adapter"] == "lora(r=2)"
    assert config.axes_in_play == ("adapter",)


def test_mapping_and_text_are_the_same_trial(load: Load) -> None:
    mapping = load("axes: {adapter: {lora: {lora_dropout: 0, target_modules: [q_proj]}}}")
    text = load("axes: {adapter: 'lora(target_modules=[q_proj], lora_dropout=0.0)'}")
    assert plan(mapping).trials[0].trial_id == plan(text).trials[0].trial_id
    twice = "axes: {adapter: [{lora: {r: 4}}, 'lora(r=4)']}"
    assert "lora(r=4) is listed twice" in problems(load, twice)


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ("{lora: {rnk: 8}}", "axes.adapter.lora.rnk: LoraConfig has no such parameter"),
        ("{lora: {target_module: q}}", 'did you mean "target_modules"?'),
        ("{lora: {r: '8'}}", 'LoraConfig takes int here, not the text "8"'),
        ("{lora: {r: 8.5}}", "LoraConfig takes int here, not 8.5"),
        ("{lora: {r: true}}", "not the boolean true"),
        ("{lora: {bias: al}}", 'does not know "al" here; did you mean "all"? Valid choices: none'),
        ("{lora: {task_type: CAUSAL_LM}}", "cannot be set here: the key model.task decides it"),
        ("{lora: {megatron_core: os}}", "cannot be set here: it imports"),
        ("{lora: 16}", "axes.adapter.lora: must be a mapping of parameters, not 16"),
        ("{lora: {}, vera: {}}", "must be one name with its parameters"),
        ("{}", "must be one name with its parameters"),
        ("{lora_r8: {r: 4}}", "lora_r8 takes no parameters; those that do: lora,"),
        ("{loar: {r: 4}}", '"loar" is not known; did you mean "lora"?'),
        ("lroa(r=4)", 'axes.adapter: "lroa" is not known; did you mean "lora"?'),
        ("lora_r16", 'did you mean "lora_r64"? With parameters of your own: lora(name=value)'),
        ("'lora(rr=4)'", "lora: LoraConfig has no such parameter"),
        ("'lora(r=4'", "is not a technique with parameters"),
        ("{lora: {lora_dropout: .nan}}", "is not a finite number"),
    ],
)
def test_wrong_parameters_name_the_key_and_what_to_write(
    adapter: str, message: str, load: Load
) -> None:
    assert message in problems(load, f"axes:\n  adapter: {adapter}\n")


def test_parameters_of_an_axis_without_any_are_refused(load: Load) -> None:
    text = problems(load, "axes: {activations: {keep: {layers: 2}}}")
    assert "must be a name, not a mapping" in text


def test_base_takes_parameters_of_its_own_bits_only(load: Load) -> None:
    value, mistakes = read_technique(AXES["base"], {"bnb_4bit": {"upcast": False}})
    assert (value, mistakes) == ("bnb_4bit(upcast=false)", [])
    text = problems(load, "axes: {base: {bnb_8bit: {bnb_4bit_quant_type: nf4}}}")
    assert "it is a parameter of bnb_4bit" in text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("base: bnb_4bit(bnb_4bit_quant_type=nf5)", 'did you mean "nf4"? Valid choices: nf4, fp4'),
        ("base: bnb_4bit(bnb_4bit_compute_dtype=bf16)", 'did you mean "bfloat16"?'),
        ("base: bnb_4bit(quant_method=awq)", "the name of the technique decides it"),
        ("base: bnb4bit(upcast=false)", 'axes.base: "bnb4bit" is not known; did you mean "bnb_4b'),
        ("activations: budget_20", "write budget_<share>: Any share between 0 and 1"),
        ("activations: budget_0.20", "written without trailing zeros"),
        ("sequence_length: '1024'", "must be an integer from 1 or data, not the text"),
        ("sequence_length: '1024'", "write it without quotes"),
        ("sequence_length: 2k", 'must be an integer from 1 or data, not the text "2k"'),
        ("loss: {eaft: {k: 1}}", "k must be at least 2"),
        ("loss: {eaft: {alpha: -1}}", "alpha must be at least 0"),
        ("trainable: {matching: {}}", "patterns has no regular expression"),
        ("trainable: {matching: {patterns: ['(']}}", '"(" in patterns is not a regular expression'),
        ("qat: {int4: {group_size: 0}}", "group_size must be at least 1"),
        ("optimizer: {muon: {lr: 0.1}}", "the training argument learning_rate decides it"),
        ("optimizer: {muon: {momentun: 0.9}}", 'did you mean "momentum"?'),
        ("optimizer: {muon: {adjust_lr_fn: adamw}}", "match_rms_adamw"),
    ],
)
def test_wrong_value_says_what_to_write(values: str, message: str, load: Load) -> None:
    assert message in problems(load, f"axes:\n  {values}\n")


def test_zenflow_in_a_deepspeed_file_is_refused(load: Load) -> None:
    text = "deepspeed: {zero_optimization: {stage: 2, zenflow: {topk_ratio: 0.1}}}\n"
    assert "zenflow: has no effect under the Trainer" in problems(load, text)


def test_reading_parameters_imports_no_library(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(MODEL + "axes: {adapter: {lora: {r: 16}}, base: {bnb_4bit: {upcast: false}}}")
    script = (
        "import sys\n"
        "from orchestrator.planning.config import load_config\n"
        f"load_config({str(path)!r})\n"
        "print(sorted({'torch', 'peft', 'transformers', 'bitsandbytes'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("axis", ["adapter", "base"])
def test_every_family_reads_its_class_whole(axis: str) -> None:
    for name, family in AXES[axis].families.items():
        value, mistakes = read_technique(AXES[axis], {name: {"no_such_parameter": 1}})
        assert (value, len(mistakes)) == ("", 1), f"{family.config_class} was not found"


@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        ("base: bnb_4bit", "base_needs_adapter"),
        ("base: 16bit", "base_needs_adapter"),
        ("base: 16bit, adapter: lora_r8, precision: bf16_weights", "base_sets_the_weights"),
        ("base: bnb_4bit, adapter: lora_r8, offload: zero3", "quantized_base_without_zero3"),
        (
            "adapter: {prefix_tuning: {num_virtual_tokens: 4}}, activations: checkpoint",
            "key_value_prefix_without_checkpointing",
        ),
    ],
)
def test_combination_that_cannot_train_is_ruled_out(choices: str, rule: str, load: Load) -> None:
    planned = plan(load(f"trials: [{{{choices}}}]"))
    assert [record.rule for record in planned.ruled_out] == [rule]


def test_base_beside_any_adapter_is_planned(load: Load) -> None:
    planned = plan(
        load("axes: {precision: bf16, base: [16bit, bnb_8bit, bnb_4bit], adapter: [lora_r8, lora]}")
    )
    assert (len(planned.trials), planned.ruled_out) == (6, ())
