"""The package flash-attn on tensors without data: what its attention allocates."""

import importlib
import sys
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import (
    AttentionInterface,
    GPTJConfig,
    GPTJForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers import modeling_flash_attention_utils as flash_utils

from jobs.spec import DataSpec
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.kernel_memory import flash_attention_backward_bytes
from orchestrator.prediction.streams.affine_stream import FLASH, Allocation
from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder
from orchestrator.prediction.tracing.fakes.fake_flash import flash_attention
from tests.conftest import build_tiny_spec
from tests.support.tiny_decoders import MODEL, PADDED, RAGGED

HEADS, WIDTH, TOKENS = 4, 20, 300  # flash-attn pads the width to 24
ROWS = [100, 200]
H200 = load_gpu("h200")


@pytest.mark.parametrize(
    ("key_heads", "is_joined", "workspace"),
    [
        # Queries in blocks of 128, or 128 more for each row; 32-bit gradients of 32 values a head.
        (4, False, 4 * 4 * 384 * 33),
        (4, True, 4 * 4 * (300 + 2 * 128) * 33),
        # Gradients of keys and values for each query head, in 16 bits.
        (2, False, 4 * 4 * 384 * 33 + 2 * 2 * 300 * 4 * 24),
        (2, True, 4 * 4 * (300 + 2 * 128) * 33 + 2 * 2 * 300 * 4 * 24),
    ],
)
def test_flash_attention_allocates_what_the_package_does(key_heads, is_joined, workspace):
    recorder = AllocationRecorder()
    batch = () if is_joined else (1,)
    with flash_attention(), FakeTensorMode(), recorder, recorder.phase("forward"):
        functions, _ = flash_utils.lazy_import_flash_attention("flash_attention_2")
        query, key, value = (
            torch.empty((*batch, TOKENS, heads, WIDTH), dtype=torch.bfloat16, requires_grad=True)
            for heads in (HEADS, key_heads, key_heads)
        )
        recorder.stream()
        if is_joined:
            begins = torch.empty(len(ROWS) + 1, dtype=torch.int32)
            output = functions[1](query, key, value, begins, begins, max(ROWS), max(ROWS))
        else:
            output = functions[0](query, key, value, causal=True)
        forward = recorder.stream()
        output.backward(output)
        backward = recorder.stream()
    assert output.shape == query.shape
    assert FLASH in forward.kernels
    sums = 4 * HEADS * TOKENS
    assert sums in _sizes(forward)
    assert 2 * TOKENS * HEADS * 24 in _sizes(forward)  # the padded query, and the output
    assert workspace in _sizes(backward)


@pytest.mark.parametrize("is_joined", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_xformers_allocates_the_output_and_the_sums_of_its_kernels(dtype, is_joined):
    recorder = AllocationRecorder()
    width = 24
    with flash_attention(), FakeTensorMode(), recorder, recorder.phase("forward"):
        attend = AttentionInterface()["xformers"]
        query, key = (
            torch.empty((1, heads, TOKENS, width), dtype=dtype, requires_grad=True)
            for heads in (HEADS, HEADS // 2)
        )
        begins = torch.empty(len(ROWS) + 1, dtype=torch.int32) if is_joined else None
        recorder.stream()
        output, _ = attend(None, query, key, key, None, cu_seq_lens_q=begins)
        forward = recorder.stream()
    assert "xformers.ops" not in sys.modules
    assert output.shape == (1, TOKENS, HEADS, width)
    # Keys and values are repeated for each query head.
    of_heads = HEADS * TOKENS * width * dtype.itemsize
    assert _sizes(forward).count(of_heads) == 3
    is_half = dtype is torch.bfloat16
    # The sums of the other kernel are padded to a multiple of 32.
    assert 4 * HEADS * (TOKENS if is_half else 320) in _sizes(forward)
    assert ("efficient" in forward.kernels) is not is_half


def _sizes(stream):
    return [own.nbytes(H200) for own in stream.events if isinstance(own, Allocation)]


def test_flash_attention_backward_deterministic_has_a_copy_for_each_block_of_threads():
    sizes = (2, 16, 256, 256, 64, 16, 0)
    once = 4 * 16 * 2 * 256
    assert flash_attention_backward_bytes(H200, *sizes, 0) == once * (1 + 64)
    # 132 multiprocessors for 32 heads of all rows.
    assert flash_attention_backward_bytes(H200, *sizes, 1) == once * (1 + 5 * 64)


@pytest.mark.parametrize("name", ["flash_attention_2", "kernels-community/vllm-flash-attn3"])
def test_flash_attention_is_found_within_the_context_alone(name, monkeypatch):
    # transformers 5.17 lacks this one, and every trial would be unknown there.
    monkeypatch.delattr(flash_utils, "FLASH_ATTN_KERNEL_VERSIONS", raising=False)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = LlamaConfig(num_hidden_layers=1, vocab_size=9, intermediate_size=8, **sizes)
    before = dict(AttentionInterface._global_mapping)
    with flash_attention(), FakeTensorMode():
        model = LlamaForCausalLM._from_config(config, attn_implementation=name)
        assert model.config._attn_implementation == name
    assert AttentionInterface._global_mapping == before
    assert flash_utils._loaded_implementation is None
    with pytest.raises((ImportError, ValueError)):
        LlamaForCausalLM._from_config(config, attn_implementation=name)


def test_a_model_whose_file_calls_the_package_itself_is_traced():
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "rotary_dim": 4}
    config = GPTJConfig(vocab_size=9, bos_token_id=1, eos_token_id=2, **sizes)
    kind = {"attn_implementation": "flash_attention_2", "dtype": torch.bfloat16}
    with FakeTensorMode():
        with flash_attention():
            model = GPTJForCausalLM._from_config(config, **kind)
        recorder = AllocationRecorder()
        with flash_attention(), recorder, recorder.phase("forward"):
            model(torch.ones(1, TOKENS, dtype=torch.long))
        assert FLASH in recorder.stream().kernels


def test_modules_that_are_imported_during_the_context_stay():
    name = "colorsys"
    sys.modules.pop(name, None)
    with flash_attention():
        importlib.import_module(name)
    assert name in sys.modules


@pytest.mark.parametrize("batching", ["pad", "padding_free"])
def test_xformers_takes_what_flash_attention_takes(batching):
    choices = {"batching": batching, "precision": "bf16"}
    specs = [
        replace(
            build_tiny_spec({**choices, "attention": name}),
            model=MODEL,
            data=DataSpec(synthetic=RAGGED if batching == "padding_free" else PADDED),
        )
        for name in ("flash_attention_2", "xformers")
    ]
    flash, xformers = predict(specs, H200)
    assert flash.allocated is not None
    assert xformers.allocated is not None, xformers.unknown
    assert xformers.allocated.bytes == pytest.approx(flash.allocated.bytes, abs=4096)
    assert any("was never compared with a GPU" in note for note in xformers.notes)
