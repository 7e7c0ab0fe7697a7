"""Libraries of triton kernels with a triton that does nothing, and only in a context."""

import importlib.util
import sys
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.models.llama import modeling_llama

from jobs.spec import DataSpec
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.streams.affine_stream import Allocation
from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.prediction.tracing.fakes.fake_triton import TritonModules
from tests.conftest import build_tiny_spec
from tests.support.tiny_decoders import MODEL, PADDED

H200 = load_gpu("h200")
LIGER = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(pointer, SIZE: tl.constexpr):
    raise ValueError("it runs")

def blocks(size):
    kernel[(triton.cdiv(size, 4),)](None, SIZE=tl.constexpr(4).value)
    return triton.next_power_of_2(size)

def gradient(left, right):
    return torch.mm(left, right)
"""
CUT = """
import torch
import triton
from triton import Config
from triton.runtime import autotuner
from triton.testing import get_dram_gbps

@torch.compile(fullgraph=True)
def sums_of(values):
    return values.sum()

def settings() -> dict[str, autotuner.Autotuner | autotuner.Heuristics]:
    return {name: value for name, value in Config({"BLOCK": 4}).all_kwargs().items()}

@triton.heuristics(settings())
@triton.jit()
def _cce_lse_forward_kernel(hidden, weight, bias, sums):
    raise ValueError("it runs")

def linear_cross_entropy(hidden, weight, targets, *, ignore_index, reduction, filter_eps):
    assert torch.cuda.is_bf16_supported()
    positions = (targets != ignore_index).nonzero()
    sums = hidden.new_zeros(positions.shape[0], dtype=torch.float64, requires_grad=True)
    _cce_lse_forward_kernel[(1,)](hidden, weight, None, sums)
    return sums_of(sums)
"""


def test_liger_allocates_as_on_cuda_and_leaves_no_trace(tmp_path, monkeypatch):
    ops = tmp_path / "liger_kernel/ops"
    ops.mkdir(parents=True)
    for folder in (ops.parent, ops):
        (folder / "__init__.py").touch()
    (ops / "fused_linear_cross_entropy.py").write_text(LIGER)
    monkeypatch.syspath_prepend(tmp_path)
    name = "liger_kernel.ops.fused_linear_cross_entropy"
    original = modeling_llama.apply_rotary_pos_emb
    liger = TritonModules(["liger_kernel"], H200, AllocationRecorder())
    left, right = torch.ones(3, 2), torch.ones(2, 5)
    with liger.present():
        loss = import_module(name)
        assert loss.blocks(5) == 8
        assert loss.gradient(left, right).untyped_storage().nbytes() == 4
        modeling_llama.apply_rotary_pos_emb = None
    assert modeling_llama.apply_rotary_pos_emb is original
    assert name not in sys.modules
    with liger.present():
        assert import_module(name) is loss
        assert modeling_llama.apply_rotary_pos_emb is None
    older = TritonModules(["liger_kernel"], load_gpu("t4"), AllocationRecorder())
    with older.present():
        assert import_module(name).gradient(left, right).untyped_storage().nbytes() == 60


@pytest.mark.parametrize("is_padded", [False, True])
def test_cut_loss_is_traced_on_the_positions_with_a_label(tmp_path, monkeypatch, is_padded):
    package = tmp_path / "cut_cross_entropy"
    package.mkdir()
    (package / "__init__.py").write_text(CUT)
    monkeypatch.syspath_prepend(tmp_path)
    synthetic = PADDED if is_padded else replace(PADDED, padding=0.0)
    spec = replace(
        build_tiny_spec({"loss": "cce", "precision": "bf16"}),
        model=MODEL,
        data=DataSpec(synthetic=synthetic),
    )
    step = FakeStep(spec, H200)
    batch = step.batches.worst(4)
    stream, _ = step.micro_batches(batch, samples=4, accumulated=False)
    # Nothing is predicted at the last token of a row.
    labels = int((batch.tensors["labels"][:, 1:] != -100).sum())
    assert (labels < 4 * 31) is is_padded
    assert 8 * labels in _sizes(stream)
    # All logits of 4 rows of 32 positions, of width 32 and 128 tokens.
    products = stream.work.eager.by_kind["bf16 products"]
    assert [4 * 32, 128, 32] in products[:, 4:].tolist()
    assert "cut_cross_entropy" not in sys.modules


@pytest.mark.skipif(not importlib.util.find_spec("cut_cross_entropy"), reason="is not installed")
@pytest.mark.parametrize("is_trained", [False, True])
def test_cut_cross_entropy_allocates_what_its_source_says(is_trained):
    tokens, width, vocabulary, ignored = 1000, 100, 3000, 7
    recorder = AllocationRecorder()
    modules = TritonModules(["cut_cross_entropy"], H200, recorder)
    recorder.follows_values = True
    with modules.present(), FakeTensorMode(), recorder, recorder.phase("forward"):
        loss = import_module("cut_cross_entropy").linear_cross_entropy
        hidden = torch.empty(tokens, width, dtype=torch.bfloat16, requires_grad=True)
        weight = torch.empty(vocabulary, width, dtype=torch.bfloat16, requires_grad=is_trained)
        targets = torch.zeros(tokens, dtype=torch.int64)
        targets[:ignored] = -100
        recorder.stream()
        total = loss(hidden, weight, targets, reduction="sum", filter_eps="auto")
        forward = _sizes(recorder.stream())
        total.backward()
        backward = _sizes(recorder.stream())
    labels = tokens - ignored
    # Which positions have a label, in 64 bits and in 32; then the logarithms of the sums and their
    # locks, the means of logits, the logits of the labels, and their sum.
    positions = [tokens, 8 * labels, 4 * labels]
    assert forward == [*positions, 4 * labels, 4 * 8, 4 * vocabulary, 4 * labels, 4]
    # The order of the vocabulary in 32 bits, after values and 64-bit positions; the gradients, and
    # the locks of both in as many columns as the width has blocks of 64.
    order = [4 * vocabulary, 8 * vocabulary, 4 * vocabulary]
    gradients = [2 * tokens * width] + [2 * vocabulary * width] * is_trained
    locks = [4 * -(-labels // 2) * 2, 4 * -(-vocabulary // 2) * 2]
    assert backward == [4, *order, *gradients, *locks]


def _sizes(stream):
    return [own.nbytes(H200) for own in stream.events if isinstance(own, Allocation)]
