"""Seconds of PyTorch's attention kernels with and without a mask, on the GPU of this machine.

``python -m tests.gpu.attention_masks FILE.parquet`` measures them, and without a GPU prints what
such a file says: the rate of masked scores in ``orchestrator/prediction/time/efficiencies.yaml``.
"""

import itertools
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.time.step_time import scores_per_second

KERNELS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
SHAPES = [(32, 16, 512, 64), (4, 32, 2048, 64), (1, 32, 4096, 64), (1, 32, 8192, 64)]
SHAPES += [(1, 32, 12288, 64), (1, 32, 16384, 64), (1, 32, 8192, 128), (1, 32, 16384, 128)]
"""Rows, heads, tokens, and the width of a head."""
TIMES = 5


def seconds(inputs: Sequence[torch.Tensor], mask: torch.Tensor | None) -> float:
    """Of a forward and a backward pass."""

    def call() -> None:
        output = scaled_dot_product_attention(*inputs, attn_mask=mask)
        torch.autograd.grad(output, inputs, torch.ones_like(output))

    for _ in range(2):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(TIMES):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / TIMES


def measured() -> Iterator[dict[str, Any]]:
    """A row for each kernel, shape and mask."""
    for rows, heads, tokens, width in SHAPES:
        made = torch.randn(3, rows, heads, tokens, width, device="cuda", dtype=torch.bfloat16)
        inputs = [own.detach().requires_grad_() for own in made]
        allowed = torch.ones(tokens, tokens, device="cuda", dtype=torch.bool).tril()
        masks = {"none": None, "bool": allowed.expand(rows, 1, tokens, tokens)}
        for (kernel, backend), (name, mask) in itertools.product(KERNELS.items(), masks.items()):
            with sdpa_kernel([backend]):
                both = seconds(inputs, mask)
            own = {"kernel": kernel, "mask": name, "batch": rows, "heads": heads}
            yield {**own, "tokens": tokens, "width": width, "both": both}


def efficiency(table: list[dict[str, Any]]) -> float:
    """Of masked scores: the median of what the mask adds, in a forward and a backward pass."""
    shape = ("kernel", "batch", "heads", "tokens", "width")
    plain = {tuple(own[name] for name in shape): own["both"] for own in table if _is(own, "none")}
    found = []
    for own in filter(lambda own: _is(own, "bool"), table):
        scores = 2 * own["batch"] * own["heads"] * own["tokens"] ** 2
        added = own["both"] - plain[tuple(own[name] for name in shape)]
        found.append(scores / scores_per_second(load_gpu("h200")) / added)
    return statistics.median(found)


def _is(own: dict[str, Any], mask: str) -> bool:
    return own["mask"] == mask and own["kernel"] in KERNELS


if __name__ == "__main__":
    file = sys.argv[1]
    if torch.cuda.is_available():
        pq.write_table(pa.Table.from_pylist(list(measured())), file)
    print(f"masked scores: {efficiency(pq.read_table(file).to_pylist()):.3f}")
