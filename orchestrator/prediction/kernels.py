"""What CUDA kernels take from the allocator for themselves while they run: workspaces that no tensor shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from orchestrator.prediction.gpus import Gpu

Dimension = tuple[int, int]
"""Stride and size, both in elements."""


def column_sum_bytes(gpu: Gpu, *layout: int) -> int:
    """Partial sums of a reduction that many thread blocks share (``sum``, ``mean``): 0 where one block does an output.

    ``layout`` is, for each dimension, its size, its stride and 1 where it is summed. Follows ``setReduceConfig`` in
    aten/src/ATen/native/cuda/Reduce.cuh for sums accumulated in 4 bytes.
    """
    reduced, kept = _coalesced(layout)
    inputs, outputs = (prod(size for _, size in dims) for dims in (reduced, kept))
    if not reduced or not inputs or not outputs:
        return 0
    along = not kept or reduced[0][0] < kept[0][0]
    stride, width = (reduced if along else kept)[0]
    height = outputs if along else inputs
    vector = 1
    if stride == 1 and along and not kept and len(reduced) == 1 and width > 128:
        width //= 4
    elif stride == 1 and not along:
        vector = _vector([width, *(s for s, _ in (*reduced, *kept[1:]))])
        width //= vector
    return _shared_by_blocks(gpu, inputs, outputs, width, height, vector, along=along)


def _shared_by_blocks(
    gpu: Gpu, inputs: int, outputs: int, width: int, height: int, vector: int, *, along: bool
) -> int:
    """Bytes of the buffer through which blocks of one output exchange what they summed."""
    most = 512 // vector
    columns, rows = (min(_last_power_of_2(size), most) for size in (width, height))
    block_width = min(columns, 32)
    block_height = min(rows, most // block_width)
    block_width = min(columns, most // block_height)
    step = block_width if along else 1
    outputs_per_block = 1 if along else block_width
    if -(-inputs // step) < min(block_height * 16, 256):
        return 0
    per_thread = -(-inputs // (step * block_height))
    target = gpu.multiprocessors * (gpu.threads_per_multiprocessor // (block_width * block_height))
    grid = -(-(outputs // vector) // outputs_per_block)
    if per_thread < 256 or grid > target:
        return 0
    blocks = max(min(-(-target // grid), -(-per_thread // 16)), -(-per_thread // 256))
    if blocks <= 1:
        return 0
    return 4 * outputs * blocks * (1 if along else block_width * vector)


def _coalesced(layout: Sequence[int]) -> tuple[list[Dimension], list[Dimension]]:
    """Summed and kept dimensions, the closest first, neighbours merged as TensorIterator does."""
    parts = [layout[i : i + 3] for i in range(0, len(layout), 3)]
    merged: tuple[list[Dimension], list[Dimension]] = ([], [])
    for size, stride, is_reduced in sorted(parts, key=lambda part: part[1]):
        dims = merged[0 if is_reduced else 1]
        if size == 1:
            continue
        if dims and dims[-1][0] * dims[-1][1] == stride:
            dims[-1] = (dims[-1][0], dims[-1][1] * size)
        else:
            dims.append((stride, size))
    return merged


def _vector(lengths: Sequence[int]) -> int:
    vector = 4
    for length in lengths:
        while length % vector:
            vector //= 2
    return vector


def _last_power_of_2(size: int) -> int:
    return 1 << (max(size, 1).bit_length() - 1)


def embedding_backward_bytes(gpu: Gpu, indices: int, rows: int, width: int) -> int:
    """Sorted indices and partial rows of ``embedding_dense_backward``; small inputs take another kernel.

    After aten/src/ATen/native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu: partial sums of ten indices each.
    """
    if indices <= 3072:
        return 0
    partial = indices // 10 + min(indices, rows)
    return 8 * (5 * indices + partial) + 4 * partial * (-(-width // 32) * 32)


def layer_norm_backward_bytes(gpu: Gpu, rows: int, width: int, element: int) -> int:
    """Partial sums of a weight's or bias's gradient where very many rows are normalized, 32 to a block.

    After ``LaunchGammaBetaBackwardCUDAKernel`` in aten/src/ATen/native/cuda/layer_norm_kernel.cu.
    """
    if rows <= 2**16 or width // 32 >= gpu.multiprocessors // 2:
        return 0
    return element * width * min(2**15 // -(-width // 32), -(-rows // 32))


def cudnn_attention_backward_bytes(
    gpu: Gpu, batch: int, heads: int, queries: int, keys: int, width: int, key_heads: int
) -> int:
    """32-bit query gradients and row sums; keys and values per query head where heads share them."""
    accumulated = 4 * batch * heads * queries * (width + 1)
    expanded = 2 * 2 * batch * heads * keys * width if key_heads != heads else 0
    return accumulated + expanded


def efficient_attention_backward_bytes(
    gpu: Gpu, batch: int, heads: int, queries: int, keys: int, width: int, element: int
) -> int:
    """Row sums and query gradients, these in 32 bits and in whole tiles of 64 × 64 with a lock each; before them the
    product of 32-bit outputs with their gradients; for wide 16-bit heads accumulators of keys and values.

    After aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_backward.h.
    """
    rows = 4 * batch * heads * queries
    tiles = 4 * batch * heads * -(-queries // 64) * -(-width // 64) * (64 * 64 + 4)
    if element == 4:
        return 2 * rows + max(rows * width, tiles)
    return rows + tiles + (4 * batch * heads * 2 * keys * width if width > 64 else 0)


def plain_bytes(gpu: Gpu, nbytes: int) -> int:
    """A tensor's own bytes."""
    return nbytes


def cublas_bytes(gpu: Gpu) -> int:
    """What cuBLAS is given once per thread."""
    return gpu.cublas_workspace_bytes


def cublaslt_bytes(gpu: Gpu) -> int:
    """What cuBLASLt is given once per thread."""
    return gpu.cublaslt_workspace_bytes


FORMULAS: Mapping[str, Callable[..., int]] = {
    "tensor": plain_bytes,
    "column_sum": column_sum_bytes,
    "embedding_backward": embedding_backward_bytes,
    "layer_norm_backward": layer_norm_backward_bytes,
    "cudnn_attention_backward": cudnn_attention_backward_bytes,
    "efficient_attention_backward": efficient_attention_backward_bytes,
    "cublas": cublas_bytes,
    "cublaslt": cublaslt_bytes,
}
"""How a recorded allocation's size follows from its integers."""
