"""Which attention kernel CUDA would pick."""

from __future__ import annotations

import torch

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.tracing.cuda_attention import attention_kernel

H200 = load_gpu("h200")
QUERY = torch.empty((2, 4, 16, 64), dtype=torch.bfloat16, device="meta")


def test_attention_kernel_permuted_bias_takes_no_fused_kernel() -> None:
    bias = torch.empty((1, 4, 16, 16), dtype=torch.bfloat16, device="meta")
    permuted = torch.empty((1, 16, 16, 4), dtype=torch.bfloat16, device="meta").permute(0, 3, 1, 2)
    assert attention_kernel(H200, QUERY, QUERY, QUERY, bias) == "cudnn"
    assert attention_kernel(H200, QUERY, QUERY, QUERY, permuted) == "math"


def test_attention_kernel_depends_on_width_and_dtype() -> None:
    wide = torch.empty((2, 4, 16, 192), dtype=torch.bfloat16, device="meta")
    full = torch.empty((2, 4, 16, 64), dtype=torch.float32, device="meta")
    assert attention_kernel(H200, wide, wide, wide, None) == "flash"
    assert attention_kernel(H200, full, full, full, None) == "efficient"
