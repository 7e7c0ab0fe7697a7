"""Adapters and quantized bases put into tiny models on the CPU."""

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from jobs.finetuning.adapters import METHODS, peft_adapter
from jobs.finetuning.frozen_base import bf16_base, fp16_base
from jobs.finetuning.quantized_base import quantized_base, torchao_int8_base
from jobs.trial import weight_formats
from jobs.trial.effective_code import code
from tests.support.tiny_decoders import LLAMA

TINY = {
    **LLAMA,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 256,
}
TOKENS = torch.arange(3, 11).reshape(1, 8)
ARGUMENTS = SimpleNamespace(gradient_checkpointing_kwargs=None)
CPU = torch.device("cpu")
NEEDED: dict[str, dict[str, Any]] = {
    # What a method asks for beside its defaults, or cannot do in layers as small as these.
    "adalora": {"total_step": 10},
    "fourierft": {"n_frequency": 10},
    "vblora": {"vector_length": 16},
    "shira": {"r": 4},
    "c3a": {"block_size": 32},
    "road": {"group_size": 32},
    "prompt_tuning": {"num_virtual_tokens": 4},
    "p_tuning": {"num_virtual_tokens": 4},
    "prefix_tuning": {"num_virtual_tokens": 4},
}


def lora(model: Any, **parameters: Any) -> Any:
    return peft_adapter(model, "causal-lm", ARGUMENTS, method="lora", parameters=parameters)


def packed(make: Any, method: str = "bnb_4bit", **parameters: Any) -> Any:
    """A model with a frozen base of bitsandbytes."""
    return quantized_base(make, False, CPU, method=method, parameters=parameters)


def maker(architecture: str = "llama", **config: Any) -> functools.partial[Any]:
    """``from_config`` of a tiny causal language model."""
    full = transformers.AutoConfig.for_model(architecture, **{**TINY, **config})
    return functools.partial(transformers.AutoModelForCausalLM.from_config, full)


# PEFT warns of layers that a method is rarely put into, and of an extension that needs CUDA.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("method", METHODS)
def test_peft_adapter_trains_with_its_own_parameters_only(method):
    model = peft_adapter(
        maker()(), "causal-lm", ARGUMENTS, method=method, parameters=NEEDED.get(method, {})
    )
    model(input_ids=TOKENS, attention_mask=torch.ones_like(TOKENS), labels=TOKENS).loss.backward()
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    untouched = [name for name, item in model.named_parameters() if item.grad is None]
    assert trained
    assert not set(trained) & set(untouched)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) < total / 2


@pytest.mark.parametrize(
    ("architecture", "config", "modules"),
    [
        ("mixtral", {"num_local_experts": 2}, {"q_proj", "v_proj"}),  # PEFT's default
        ("phi3", {}, {"qkv_proj"}),
        ("olmo2", {}, {"q_proj", "v_proj"}),
        (
            "deepseek_v3",
            {"first_k_dense_replace": 9},
            {"kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj"},
        ),
        ("gpt_neox", {}, {"query_key_value"}),
    ],
)
def test_lora_adapts_query_and_value(architecture, config, modules):
    adapted = {
        name.split(".lora_A")[0].rpartition(".")[2]
        for name, _ in lora(maker(architecture, **config)()).named_parameters()
        if "lora_A" in name
    }
    assert adapted == modules


def test_lora_of_a_model_without_query_and_value_needs_modules():
    config = transformers.AutoConfig.for_model(
        "resnet", embedding_size=8, hidden_sizes=[8], depths=[1]
    )
    model = transformers.AutoModelForImageClassification.from_config(config)
    with pytest.raises(ValueError, match="name target_modules"):
        lora(model)


@pytest.mark.parametrize(
    ("method", "parameters", "reason"),
    [
        ("lora", {"target_modules": ["nope"]}, "not found in the base model"),
        ("adalora", {}, "total_step"),
        ("nothing", {}, "not a valid PeftType"),
        ("lora", {"megatron_core": "os"}, "megatron_core may not be set here"),
        ("prompt_tuning", {"tokenizer_name_or_path": "x"}, "_path may not be set here"),
    ],
)
def test_adapter_that_peft_cannot_make_says_why(method, parameters, reason):
    with pytest.raises(ValueError, match=reason):
        peft_adapter(maker()(), "causal-lm", ARGUMENTS, method=method, parameters=parameters)


@pytest.mark.parametrize(
    ("method", "bits"), [("bnb_4bit", 4), ("bnb_8bit", 8), ("torchao_int8", 8)]
)
def test_quantized_base_packs_every_layer_but_the_output(method, bits):
    torch.manual_seed(0)
    if method == "torchao_int8":
        model = torchao_int8_base(maker(), False, CPU)
    else:
        model = packed(maker(), method)
    row = weight_formats.measurements(model)
    # PEFT's preparation, which torchao's base does without, casts the rest to 32 bits.
    other = "weights_32bit_bytes" if method == "torchao_int8" else "weights_16bit_bytes"
    assert (row["base_quantized_share"], row[other]) == (1.0, 0)
    # Two layers of 16-bit matrices: 4 projections of attention and 3 of the gated layer.
    elements = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128)
    scales = row[f"weights_{bits}bit_bytes"] - elements * bits / 8
    # A row has a scale in 8 bits. In 4 bits each of the 14 layers has two tables of codes, too.
    assert 0 < scales < 14 * 1400
    assert row["parameters_total"] == sum(p.numel() for p in maker()().parameters())
    assert row["parameters_trainable"] == 0
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    # A model of random weights knows nothing: its loss is that of equal chances.
    loss = model(input_ids=TOKENS, labels=TOKENS).loss.item()
    assert loss == pytest.approx(torch.log(torch.tensor(256.0)).item(), rel=0.05)


def test_weights_are_read_as_a_pass_on_a_cpu_leaves_them():
    model = packed(maker(), "bnb_4bit")
    state = model.model.layers[0].mlp.up_proj.weight.quant_state
    state.nested = False  # bitsandbytes unpacks the scales of scales
    del state.state2
    assert weight_formats.measurements(model)["base_quantized_share"] == 1.0


def test_quantized_base_of_a_checkpoint_packs_what_transformers_packs(tmp_path):
    maker(tie_word_embeddings=True)().save_pretrained(tmp_path)
    load = functools.partial(transformers.AutoModelForCausalLM.from_pretrained, tmp_path)
    loaded = quantized_base(load, True, CPU, method="bnb_4bit", parameters={})
    drawn = packed(maker(tie_word_embeddings=True))
    formats = []
    for model in (loaded, drawn):
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
        formats.append({name: type(item).__name__ for name, item in model.named_parameters()})
    assert formats[0] == formats[1]
    assert weight_formats.measurements(loaded) == weight_formats.measurements(drawn)


def test_quantized_base_of_fused_experts_is_flagged():
    # transformers 5 holds all experts of a layer in one parameter, which no quantizer replaces.
    model = packed(mixture())
    assert code(model)["experts_implementation"] == "eager"
    share = weight_formats.measurements(model)["base_quantized_share"]
    flag = weight_formats.unquantized_flag(share)
    assert flag.kind == "not_quantized"
    assert flag.value == pytest.approx(1 - share)
    assert flag.value > 0.4
    assert weight_formats.unquantized_flag(None) is None
    assert weight_formats.unquantized_flag(0.99) is None


@pytest.mark.parametrize("make_base", [bf16_base, fp16_base])
def test_16_bit_base_has_adapters_in_32_bits(make_base):
    model = lora(make_base(maker(), False, CPU))
    row = weight_formats.measurements(model)
    assert row["weights_16bit_bytes"] == 2 * sum(p.numel() for p in maker()().parameters())
    assert row["weights_32bit_bytes"] == 4 * row["parameters_trainable"]
    assert "base_quantized_share" not in row


@pytest.mark.parametrize("method", ["bnb_4bit", "bnb_8bit"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_lora_of_a_packed_base_has_the_dtype_that_is_asked_for(method, dtype):
    model = lora(packed(maker(), method), dtype=dtype, target_modules="all-linear")
    trained = {own.dtype for own in model.parameters() if own.requires_grad}
    assert trained == {getattr(torch, dtype)}
    # The rest of the base stays in 32 bits.
    assert model.get_input_embeddings().weight.dtype is torch.float32


PACKED = {"quantize_experts": True, "upcast": False}


def mixture() -> functools.partial[Any]:
    """A tiny mixture of four experts, which transformers keeps in one parameter a layer."""
    return maker("mixtral", num_local_experts=4, experts_implementation="eager")


@pytest.mark.parametrize(("method", "bits"), [("bnb_4bit", 4), ("bnb_8bit", 8)])
def test_quantized_base_packs_experts_beside_a_trained_adapter(method, bits):
    torch.manual_seed(0)
    base = packed(mixture(), method, **PACKED)
    row = weight_formats.measurements(base)
    assert row["base_quantized_share"] > 0.99  # all but the router
    # Of two layers: four experts with three matrices of 64 by 128 each.
    assert row[f"weights_{bits}bit_bytes"] > 2 * 4 * 3 * 64 * 128 * bits / 8
    model = lora(base, r=4, target_modules=["o_proj"])
    losses = []
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        loss = model(input_ids=TOKENS, labels=TOKENS).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
def test_peft_adapter_of_experts_is_refused_where_they_are_packed():
    targets = {"target_modules": ["o_proj"], "target_parameters": ["experts.down_proj"]}
    model = lora(mixture()(), **targets)
    assert any("experts.lora_A" in name for name, _ in model.named_parameters())
    with pytest.raises(ValueError, match=r"PEFT does not support .* packed in 4 bits"):
        lora(packed(mixture(), **PACKED), **targets)


def test_quantized_base_without_such_experts_says_so():
    with pytest.raises(ValueError, match="does not support quantize_experts"):
        packed(maker(), quantize_experts=True)
