"""The line through the predictions of one set of techniques."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.search.model.memory.memory_line import MemoryLine


def test_line_goes_on_beyond_the_largest_micro_batch() -> None:
    line = MemoryLine(np.array([4.0, 8.0]), np.array([10.0, 14.0]))
    assert line.at(np.array([2.0, 6.0, 16.0])) == pytest.approx([10.0, 12.0, 22.0])


def test_line_never_falls_beyond_the_largest_micro_batch() -> None:
    """What the allocator caches can make a larger micro-batch need a little less."""
    line = MemoryLine(np.array([4.0, 8.0]), np.array([10.0, 9.0]))
    assert line.at(np.array([16.0, 1024.0])) == pytest.approx([9.0, 9.0])
