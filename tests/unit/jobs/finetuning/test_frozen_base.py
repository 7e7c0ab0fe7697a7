"""Frozen bases in fp16, from checkpoints in MXFP4, and with experts in 8 bits; LoftQ's adapters."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from jobs.finetuning.adapters import peft_adapter
from jobs.finetuning.frozen_base import bf16_base, dequantized_base
from jobs.finetuning.quantized_base import _pack_in_8_bits
from jobs.techniques import AXES
from tests.unit.jobs.finetuning.test_adapters import (
    ARGUMENTS,
    CPU,
    TINY,
    TOKENS,
    lora,
    maker,
    mixture,
    packed,
)


@pytest.mark.parametrize("method", ["bnb_4bit", "bnb_8bit"])
def test_quantized_base_in_fp16_has_no_other_format_beside_its_codes(method):
    model = packed(maker(), method, dtype="float16", upcast=False)
    wide = {item.dtype for item in model.parameters() if item.is_floating_point()}
    assert wide == {torch.float16}
    if method == "bnb_4bit":
        assert model.model.layers[0].mlp.up_proj.compute_dtype is torch.float16


@pytest.mark.parametrize("method", ["bnb_4bit", "bnb_8bit"])
@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "llama"])
def test_head_of_a_classifier_is_trained_as_it_is_beside_a_packed_base(architecture, method):
    config = transformers.AutoConfig.for_model(architecture, **{**TINY, "num_hidden_layers": 1})
    make = functools.partial(transformers.AutoModelForSequenceClassification.from_config, config)
    parameters = {"target_modules": "all-linear"}
    model = peft_adapter(
        packed(make, method), "sequence-classification", ARGUMENTS,
        method="lora", parameters=parameters,
    )  # fmt: skip
    model(input_ids=TOKENS, labels=torch.tensor([1])).loss.backward()
    trained = [name for name, own in model.named_parameters() if own.grad is not None]
    assert any("modules_to_save" in name for name in trained)
    assert any("lora_B" in name for name in trained)


def loader(folder: Path) -> functools.partial[Any]:
    config = transformers.AutoConfig.from_pretrained(folder)
    make = transformers.AutoModelForCausalLM.from_pretrained
    return functools.partial(make, folder, config=config)


def packed_checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    """A checkpoint of tiny experts in MXFP4; returns its tensors."""
    sizes = {"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 16, **TINY}
    config = transformers.AutoConfig.for_model("gpt_oss", **sizes)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = {}
    for name, tensor in load_file(file).items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = tensor
            continue
        # Two codes of 4 bits are in a byte, and 32 of them share a scale of 2 ** (code - 127).
        experts, inputs, outputs = tensor.shape
        shape = (experts, outputs, inputs // 32)
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
        tensors[f"{name}_scales"] = torch.full(shape, 120, dtype=torch.uint8)
    save_file(tensors, file, metadata={"format": "pt"})
    stored = json.loads((folder / "config.json").read_text())
    stored["quantization_config"] = {"quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(stored))
    return tensors


def test_dequantized_base_of_an_mxfp4_checkpoint_trains_in_bf16(tmp_path):
    # The eight positive codes of 4 bits (OCP MX specification, table 5); bit 3 is the sign.
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    codes = torch.cat([values, -values])
    tensors = packed_checkpoint(tmp_path)
    model = dequantized_base(loader(tmp_path), True, CPU)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    bytes_ = tensors["model.layers.0.mlp.experts.down_proj_blocks"].long()
    pairs = torch.stack([codes[bytes_ % 16], codes[bytes_ // 16]], dim=-1)
    expected = pairs.flatten(2).transpose(1, 2) * 2.0 ** (120 - 127)
    assert torch.equal(model.model.layers[0].mlp.experts.down_proj.float(), expected)
    lora(model, r=4)(input_ids=TOKENS, labels=TOKENS).loss.backward()


def test_dequantized_base_of_a_checkpoint_in_16_bits_is_refused(tmp_path):
    maker()().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="not quantized"):
        dequantized_base(loader(tmp_path), True, CPU)


def test_loftq_fills_in_what_its_configuration_leaves_out():
    chosen = "lora(init_lora_weights=loftq,loftq_config={loftq_bits:4},r=4)"
    variant = AXES["adapter"].variant(chosen)
    assert "cuda" in variant.requires  # PEFT computes the weights on an accelerator
    if not torch.cuda.is_available():
        return
    model = maker()().to("cuda")
    before = model.model.layers[0].self_attn.q_proj.weight.detach().clone()
    adapted = peft_adapter(model, "causal-lm", ARGUMENTS, **variant.hooks["model"].arguments)
    layer = adapted.base_model.model.model.layers[0].self_attn.q_proj
    # The base now has rounded values, and the adapter begins with a part of the rest.
    assert not torch.equal(layer.base_layer.weight, before)
    assert layer.lora_B["default"].weight.abs().max() > 0


def test_experts_in_8_bits_are_the_weights_rounded_to_their_rows_scale():
    torch.manual_seed(0)
    plain = bf16_base(mixture(), False, CPU)
    experts = plain.model.layers[0].mlp.experts
    before = experts.down_proj.detach().clone()
    _pack_in_8_bits(experts, "down_proj")
    after = experts.down_proj
    assert (after.dtype, after.shape) == (torch.bfloat16, before.shape)
    # A code is at most half a step from the value, and 127 steps reach a row's largest value. The
    # result is rounded to bf16, which has 8 bits.
    largest = before.abs().amax(dim=-1, keepdim=True)
    error = (after - before).abs().float()
    assert (error <= largest.float() * (0.5 / 127 + 2**-8)).all()
    assert error.max() > 0
