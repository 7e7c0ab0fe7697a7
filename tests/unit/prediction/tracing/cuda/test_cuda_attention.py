"""Which attention kernel CUDA would pick."""

import pytest
import torch

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.tracing.cuda.cuda_attention import attention_kernel

H200 = load_gpu("h200")
QUERY = torch.empty((2, 4, 16, 64), dtype=torch.bfloat16, device="meta")


def test_attention_kernel_permuted_bias_takes_no_fused_kernel():
    bias = torch.empty((1, 4, 16, 16), dtype=torch.bfloat16, device="meta")
    permuted = torch.empty((1, 16, 16, 4), dtype=torch.bfloat16, device="meta").permute(0, 3, 1, 2)
    assert attention_kernel(H200, QUERY, QUERY, QUERY, bias) == "cudnn"
    assert attention_kernel(H200, QUERY, QUERY, QUERY, permuted) == "math"


def test_attention_kernel_is_an_allowed_one_or_none():
    assert attention_kernel(H200, QUERY, QUERY, QUERY, None, allowed=("flash",)) == "flash"
    assert attention_kernel(H200, QUERY, QUERY, QUERY, QUERY, allowed=("flash",)) == ""


HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("gpu", "dtype", "key_heads", "width", "dropout", "kernel"),
    [
        ("h200", HALF, 1, 64, 0.0, "cudnn"),
        ("h200", BRAIN, 4, 192, 0.0, "flash"),
        ("h200", FULL, 4, 64, 0.0, "efficient"),
        ("b200", BRAIN, 4, 64, 0.0, "cudnn"),
        ("rtx_5090", BRAIN, 4, 64, 0.0, "flash"),
        ("a100_40gb", BRAIN, 1, 64, 0.0, "flash"),
        # Below capability 8.0 there is no FlashAttention, and the other kernel has limits.
        ("t4", HALF, 4, 64, 0.0, "efficient"),
        ("t4", HALF, 1, 64, 0.0, "math"),
        ("v100_32gb", BRAIN, 4, 64, 0.0, "math"),
        ("t4", HALF, 4, 12, 0.0, "math"),
        ("t4", FULL, 4, 6, 0.0, "efficient"),
        ("a10g", FULL, 4, 6, 0.0, "math"),
        # Wide heads in the backward pass on consumer GPUs.
        ("a10g", BRAIN, 4, 192, 0.0, "flash"),
        ("a10g", BRAIN, 4, 208, 0.0, "efficient"),
        ("l4", BRAIN, 4, 256, 0.0, "flash"),
        ("l40s", BRAIN, 4, 256, 0.1, "efficient"),
        ("rtx_5090", BRAIN, 4, 208, 0.0, "efficient"),
        ("a100_80gb", BRAIN, 4, 208, 0.1, "flash"),
        ("h200", BRAIN, 4, 288, 0.0, "efficient"),
    ],
)
def test_attention_kernel_is_one_that_the_gpu_has(gpu, dtype, key_heads, width, dropout, kernel):
    query = torch.empty((2, 4, 16, width), dtype=dtype, device="meta", requires_grad=True)
    key = torch.empty((2, key_heads, 16, width), dtype=dtype, device="meta")
    assert attention_kernel(load_gpu(gpu), query, key, key, None, dropout) == kernel


def test_attention_kernel_without_gradients_takes_wide_heads():
    query = torch.empty((2, 4, 16, 208), dtype=BRAIN, device="meta")
    assert attention_kernel(load_gpu("a10g"), query, query, query, None) == "flash"


def test_attention_kernel_of_causal_rows_of_two_lengths():
    key = torch.empty((2, 4, 32, 64), dtype=BRAIN, device="meta")
    a100 = load_gpu("a100_40gb")
    assert attention_kernel(a100, QUERY, key, key, None) == "flash"
    assert attention_kernel(a100, QUERY, key, key, None, is_causal=True) == "efficient"
