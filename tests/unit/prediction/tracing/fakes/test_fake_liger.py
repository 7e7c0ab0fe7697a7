"""Liger's modules with a triton that does nothing, and only in a context."""

import sys
from importlib import import_module

import torch
from transformers.models.llama import modeling_llama

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.tracing.fakes.fake_liger import LigerModules

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


def test_liger_allocates_as_on_cuda_and_leaves_no_trace(tmp_path, monkeypatch):
    ops = tmp_path / "liger_kernel/ops"
    ops.mkdir(parents=True)
    for folder in (ops.parent, ops):
        (folder / "__init__.py").touch()
    (ops / "fused_linear_cross_entropy.py").write_text(LIGER)
    monkeypatch.syspath_prepend(tmp_path)
    name = "liger_kernel.ops.fused_linear_cross_entropy"
    original = modeling_llama.apply_rotary_pos_emb
    liger = LigerModules(load_gpu("h200"))
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
    older = LigerModules(load_gpu("t4"))
    with older.present():
        assert import_module(name).gradient(left, right).untyped_storage().nbytes() == 60
