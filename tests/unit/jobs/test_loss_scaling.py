"""Flags of accumulated trainings whose loss is not that of one without accumulation."""

from __future__ import annotations

import math

import pytest

from jobs.flags import Flag, FlagKind
from jobs.loss_scaling import scaling_flag


@pytest.mark.parametrize("ratio", [1.0, 1.004, 0.99, None, math.nan])
def test_scaling_flag_of_a_right_or_unchecked_loss_is_none(ratio: float | None) -> None:
    assert scaling_flag(ratio, 4) is None


def test_scaling_flag_names_a_loss_that_is_never_divided() -> None:
    assert scaling_flag(4.01, 4) == Flag(FlagKind.LOSS_TIMES_ACCUMULATION, 4.01)


@pytest.mark.parametrize("ratio", [0.25, 0.0, 1.5, 3.0])
def test_scaling_flag_of_another_factor_is_a_mismatch(ratio: float) -> None:
    assert scaling_flag(ratio, 4) == Flag(FlagKind.LOSS_MISMATCH, ratio)
