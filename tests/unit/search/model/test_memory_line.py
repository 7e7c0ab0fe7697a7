"""The line through the predictions of one set of techniques."""

import numpy as np
import pytest

from orchestrator.search.model.memory.predicted_memory import MemoryLine


def test_line_goes_on_beyond_the_largest_micro_batch():
    line = MemoryLine(np.array([4.0, 8.0]), np.array([10.0, 14.0]))
    assert line.at(np.array([2.0, 6.0, 16.0])) == pytest.approx([10.0, 12.0, 22.0])


def test_line_never_falls_beyond_the_largest_micro_batch():
    """What the allocator caches can make a larger micro-batch need a little less."""
    line = MemoryLine(np.array([4.0, 8.0]), np.array([10.0, 9.0]))
    assert line.at(np.array([16.0, 1024.0])) == pytest.approx([9.0, 9.0])


@pytest.mark.parametrize(
    ("sizes", "sizes_bytes", "base"),
    [
        ([4.0], [10.0], 5.0),
        ([2.0, 4.0, 8.0], [7.0, 9.0, 13.0], 5.0),
        # One prediction is far off the line; the median slope does not notice.
        ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 30.0, 10.0], 5.0),
        # Negative by the slope, and above all of the smallest.
        ([1.0, 2.0], [1.0, 9.0], 0.0),
        ([1.0, 2.0], [9.0, 8.0], 9.0),
    ],
)
def test_base_is_where_the_line_meets_zero(sizes, sizes_bytes, base):
    assert MemoryLine(np.array(sizes), np.array(sizes_bytes)).base == pytest.approx(base)
