"""From replayed peaks to predictions."""

from __future__ import annotations

import pytest

from orchestrator.prediction.estimator import reserved_interval
from orchestrator.prediction.replay import ReplayedPeaks
from orchestrator.units import MIB


@pytest.mark.parametrize(("upwards", "likely"), [(1010, 1000), (1100, 1050), (900, 950)])
def test_reserved_interval_where_the_order_matters_takes_the_middle(
    upwards: int, likely: int
) -> None:
    peaks = ReplayedPeaks(
        allocated=900 * MIB,
        reserved=1000 * MIB,
        reserved_upwards=upwards * MIB,
        at_peak={},
    )
    reserved = reserved_interval(peaks)
    assert reserved.bytes == likely * MIB
    assert reserved.low < min(1000, upwards) * MIB
    assert reserved.high > max(1000, upwards) * MIB
