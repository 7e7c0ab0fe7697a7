"""Techniques with parameters in a config file: read, checked and planned."""

from collections.abc import Callable

import pytest

from jobs.techniques import AXES
from orchestrator.planning.plan import plan
from orchestrator.planning.problems import ConfigError
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.technique_values import read_technique

Load = Callable[[str], SweepConfig]


def problems(load: Load, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value)


def test_parameters_in_every_place_of_a_file_become_one_written_form(load):
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


def test_mapping_and_text_are_the_same_trial(load):
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
def test_wrong_parameters_name_the_key_and_what_to_write(adapter, message, load):
    assert message in problems(load, f"axes:\n  adapter: {adapter}\n")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("base: bnb_4bit(bnb_4bit_quant_type=nf5)", 'did you mean "nf4"? Valid choices: nf4, fp4'),
        ("base: bnb_4bit(bnb_4bit_compute_dtype=bf16)", 'did you mean "bfloat16"?'),
        ("base: bnb_4bit(quant_method=awq)", "the name of the technique decides it"),
        ("base: bnb4bit(upcast=false)", 'axes.base: "bnb4bit" is not known; did you mean "bnb_4b'),
        ("base: {bnb_8bit: {bnb_4bit_quant_type: nf4}}", "it is a parameter of bnb_4bit"),
        ("activations: {keep: {layers: 2}}", "must be a name, not a mapping"),
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
def test_wrong_value_says_what_to_write(values, message, load):
    assert message in problems(load, f"axes:\n  {values}\n")


def test_zenflow_in_a_deepspeed_file_is_refused(load):
    text = "deepspeed: {zero_optimization: {stage: 2, zenflow: {topk_ratio: 0.1}}}\n"
    assert "zenflow: has no effect under the Trainer" in problems(load, text)


@pytest.mark.parametrize("axis", ["adapter", "base"])
def test_every_family_reads_its_class_whole(axis):
    for name, family in AXES[axis].families.items():
        value, mistakes = read_technique(AXES[axis], {name: {"no_such_parameter": 1}})
        assert (value, len(mistakes)) == ("", 1), f"{family.config_class} was not found"
