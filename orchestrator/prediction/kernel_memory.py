"""The workspaces that CUDA kernels take from the allocator while they run. No tensor shows them."""

from collections.abc import Callable, Mapping, Sequence
from math import gcd, prod
from operator import attrgetter, itemgetter

from orchestrator.prediction.gpus import Gpu

Dimension = tuple[int, int]
"""Stride and size, both in elements."""
_WARP = 32
FLOAT_BYTES = 4


def column_sum_bytes(gpu: Gpu, *layout: int) -> int:
    """Partial sums of a reduction (``sum``, ``mean``) of which many thread blocks share an output.

    ``layout`` has three integers per dimension: its size, its stride, and 1 if it is summed.
    0 if one block computes an output. Follows ``setReduceConfig`` in
    aten/src/ATen/native/cuda/Reduce.cuh for sums accumulated in 4 bytes.
    """
    reduced, kept = _coalesced(layout)
    # The elements that are summed for an output, and the number of outputs.
    inputs = prod(size for _, size in reduced)
    outputs = prod(size for _, size in kept)
    if not reduced or not inputs or not outputs:
        return 0
    # A block lies along the dimension that is closest in memory.
    along = not kept or reduced[0][0] < kept[0][0]
    width, vector = _vectorized(reduced, kept, along=along)
    columns, rows = _block(width, outputs if along else inputs, vector)
    # Outputs that a block computes, in vectors; inputs of an output that a row of threads reads at
    # a time. Divisions are rounded up, because a rest needs a whole block.
    block_outputs, step_inputs = (1, columns) if along else (columns, 1)
    # Few inputs are summed without splitting them over the rows of a block.
    if -(-inputs // step_inputs) < min(rows * 16, 256):
        return 0
    sharing = _blocks_an_output(
        blocks=-(-(outputs // vector) // block_outputs),
        blocks_at_once=gpu.multiprocessors * (gpu.threads_per_multiprocessor // (columns * rows)),
        inputs_a_thread=-(-inputs // (step_inputs * rows)),
    )
    # Each block writes one partial sum for every output that it shares.
    return FLOAT_BYTES * outputs * sharing * block_outputs * vector if sharing > 1 else 0


def _vectorized(reduced: list[Dimension], kept: list[Dimension], *, along: bool) -> tuple[int, int]:
    """Length of the closest dimension in vectors, as contiguous inputs are read, and the outputs in
    a vector: one along the reduction, across it as many as divide every size and stride."""
    stride, width = (reduced if along else kept)[0]
    if stride != 1:
        return width, 1
    if not along:
        further = [stride for stride, _ in (*reduced, *kept[1:])]
        vector = gcd(4, width, *further)
        return width // vector, vector
    if not kept and len(reduced) == 1 and width > 128:
        return width // 4, 1
    return width, 1


def _block(width: int, height: int, vector: int) -> tuple[int, int]:
    """``ReduceConfig::set_block_dimension``: powers of two, a warp wide if the data allows it.

    ``vector`` outputs are those of a thread. Returns the threads in a row, and the rows.
    """
    # A block has 512 threads at most, fewer if each of them sums several outputs (Reduce.cuh).
    most_threads = 512 // vector
    columns = min(_last_power_of_2(width), most_threads)
    rows = min(_last_power_of_2(height), most_threads // min(columns, _WARP))
    return min(columns, most_threads // rows), rows


def _blocks_an_output(*, blocks: int, blocks_at_once: int, inputs_a_thread: int) -> int:
    """How many blocks sum the inputs of one output; 1 if they share nothing."""
    # Blocks share no output if all of them already fill the GPU, or if each thread sums little.
    if inputs_a_thread < 256 or blocks > blocks_at_once:
        return 1
    # As many blocks share an output as fill the GPU. Each thread then sums 16 to 256 inputs.
    wanted = min(-(-blocks_at_once // blocks), -(-inputs_a_thread // 16))
    return max(wanted, -(-inputs_a_thread // 256))


def _coalesced(layout: Sequence[int]) -> tuple[list[Dimension], list[Dimension]]:
    """Summed and kept dimensions, the closest first, neighbours merged as TensorIterator does."""
    dimensions = [layout[start : start + 3] for start in range(0, len(layout), 3)]
    reduced: list[Dimension] = []
    kept: list[Dimension] = []
    for size, stride, is_reduced in sorted(dimensions, key=itemgetter(1)):
        if size == 1:
            continue
        _merge(reduced if is_reduced else kept, stride, size)
    return reduced, kept


def _merge(merged: list[Dimension], stride: int, size: int) -> None:
    """Append a dimension; one that begins where the last one ends becomes part of it."""
    if merged and merged[-1][0] * merged[-1][1] == stride:
        closer_stride, closer_size = merged[-1]
        merged[-1] = (closer_stride, closer_size * size)
    else:
        merged.append((stride, size))


def _last_power_of_2(size: int) -> int:
    return 1 << (max(size, 1).bit_length() - 1)


def embedding_backward_bytes(gpu: Gpu, indices: int, rows: int, width: int) -> int:
    """Sorted indices and partial rows of ``embedding_dense_backward``, after
    aten/src/ATen/native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu."""
    if indices <= 3072:  # another kernel
        return 0
    # Each partial sum has ten indices.
    partial_rows = indices // 10 + min(indices, rows)
    index_bytes = 8 * (5 * indices + partial_rows)
    return index_bytes + FLOAT_BYTES * partial_rows * (-(-width // _WARP) * _WARP)


def layer_norm_backward_bytes(gpu: Gpu, rows: int, width: int, element: int) -> int:
    """Partial sums of a weight's or bias's gradient if very many rows are normalized, after
    ``LaunchGammaBetaBackwardCUDAKernel`` in aten/src/ATen/native/cuda/layer_norm_kernel.cu."""
    if rows <= 2**16 or width // _WARP >= gpu.multiprocessors // 2:
        return 0
    # A row of partial sums for each block of 32 rows; the grid is kept below 2**15 blocks.
    blocks = min(2**15 // -(-width // _WARP), -(-rows // _WARP))
    return element * width * blocks


def cudnn_attention_backward_bytes(
    gpu: Gpu, batch: int, heads: int, queries: int, keys: int, width: int, key_heads: int
) -> int:
    """32-bit query gradients and row sums; keys and values per query head if heads share them."""
    accumulated = FLOAT_BYTES * batch * heads * queries * (width + 1)
    if key_heads == heads:
        return accumulated
    # Heads that share keys and values get expanded gradients of 2 bytes each.
    expanded = 2 * batch * heads * keys * width
    return accumulated + 2 * expanded  # keys and values, 16 bits each


def efficient_attention_backward_bytes(
    gpu: Gpu, batch: int, heads: int, queries: int, keys: int, width: int, element: int
) -> int:
    """Row sums, and query gradients in 32 bits in whole tiles of 64 × 64 with a lock each, after
    aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_backward.h."""
    row_sums = FLOAT_BYTES * batch * heads * queries
    tiles = batch * heads * -(-queries // 64) * -(-width // 64)
    tile_bytes = FLOAT_BYTES * tiles * (64 * 64 + 4)
    if element == FLOAT_BYTES:
        # The product of outputs with their gradients is free again before the tiles are taken.
        product = row_sums * width
        return 2 * row_sums + max(product, tile_bytes)
    if width <= 64:
        return row_sums + tile_bytes
    # Wide heads in 16 bits: gradients of keys and values are summed in 32 bits first.
    accumulators = FLOAT_BYTES * batch * heads * 2 * keys * width
    return row_sums + tile_bytes + accumulators


def flash_attention_backward_bytes(gpu: Gpu, *sizes: int) -> int:
    """32-bit query gradients and row sums; keys and values per query head if heads share them.

    ``sizes``: rows, query heads, queries, keys, width, key heads, and whether the rows are in one
    sequence, whose queries and keys are counted together, and whether the result is deterministic.
    After ``mha_bwd`` and ``mha_varlen_bwd`` of csrc/flash_attn/flash_api.cpp, which PyTorch has in
    aten/src/ATen/native/transformers/cuda/flash_attn. FlashAttention-3 (hopper/flash_api.cpp)
    takes no more if heads share keys, and otherwise one more row of sums.
    """
    rows, heads, queries, keys, width, key_heads, is_joined, is_deterministic = sizes
    padded = queries + 128 * rows if is_joined else rows * (-(-queries // 128) * 128)
    unit = 32 if width <= 128 else 64
    # Each block of threads adds to the gradients, or to a copy of its own.
    copies = -(-gpu.multiprocessors // (rows * heads)) if is_deterministic else 1
    accumulated = FLOAT_BYTES * heads * padded * (1 + copies * (-(-width // unit) * unit))
    if key_heads == heads:
        return accumulated
    expanded = 2 * (keys if is_joined else rows * keys) * heads * width
    return accumulated + 2 * expanded


FORMULAS: Mapping[str, Callable[..., int]] = {
    "tensor": lambda gpu, nbytes: nbytes,
    "column_sum": column_sum_bytes,
    "embedding_backward": embedding_backward_bytes,
    "layer_norm_backward": layer_norm_backward_bytes,
    "cudnn_attention_backward": cudnn_attention_backward_bytes,
    "flash_attention_backward": flash_attention_backward_bytes,
    "efficient_attention_backward": efficient_attention_backward_bytes,
    "cublas": attrgetter("cublas_workspace_bytes"),
    "cublaslt": attrgetter("cublaslt_workspace_bytes"),
}
"""Name -> how a recorded allocation's size follows from its integers."""
