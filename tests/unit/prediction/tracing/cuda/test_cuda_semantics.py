"""What a library that names CUDA finds while a step is traced."""

from typing import Any

import torch

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.tracing.cuda.cuda_semantics import cuda_semantics


class Product(torch.autograd.Function):
    """As torchao writes it: both passes run under the autocast of CUDA."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx: Any, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rows, weight)
        return rows @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        rows, weight = ctx.saved_tensors
        products = gradient @ weight.t(), rows.t() @ gradient
        assert [own.dtype for own in products] == [torch.bfloat16] * 2
        return products


def test_function_of_a_library_runs_backward_under_the_autocast_of_its_forward_pass():
    rows, weight = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    with cuda_semantics(load_gpu("h200"), set(), ()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.get_autocast_dtype("cuda") is torch.bfloat16
            result = Product.apply(rows, weight)
        result.sum().backward()
    assert result.dtype is torch.bfloat16
    assert rows.grad is not None
