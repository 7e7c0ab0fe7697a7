"""Workspaces that CUDA kernels take for themselves."""

import pytest

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.kernel_memory import (
    column_sum_bytes,
    efficient_attention_backward_bytes,
    layer_norm_backward_bytes,
)
from orchestrator.units import MIB

H200 = load_gpu("h200")


@pytest.mark.parametrize(
    ("rows", "columns", "mib"),
    # Seen on the H200 as what a bias gradient adds to the peak of BERT-large.
    [(2048, 1024, 16), (8192, 1024, 64), (32768, 1024, 132), (4096, 4096, 128), (128, 1024, 0)],
)
def test_column_sum_over_many_rows_takes_a_buffer(rows, columns, mib):
    assert column_sum_bytes(H200, rows, columns, 1, columns, 1, 0) == mib * MIB


@pytest.mark.parametrize(
    ("rows", "width", "partial_rows"),
    # Swin's first stage; one row too few; more blocks than a grid has; rows of a large model.
    [(32 * 56**2, 96, 3136), (2**16, 96, 0), (2**22, 96, 2**15 // 3), (2**17, 4096, 0)],
)
def test_layer_norm_over_very_many_rows_sums_by_parts(rows, width, partial_rows):
    assert layer_norm_backward_bytes(H200, rows, width, 4) == 4 * width * partial_rows


@pytest.mark.parametrize("element", [2, 4])
def test_attention_of_short_rows_takes_whole_tiles(element):
    # Swin's windows of 49 pixels, 32 channels a head: its reserved memory shows 64 × 64 each.
    heads = 6400 * 3
    taken = efficient_attention_backward_bytes(H200, 6400, 3, 49, 49, 32, element)
    assert taken == 4 * heads * (49 * element // 2 + 64 * 64 + 4)


def test_row_sum_takes_no_buffer():
    assert column_sum_bytes(H200, 8192, 1024, 0, 1024, 1, 1) == 0
