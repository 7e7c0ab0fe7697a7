"""Flags in words: every kind has its own, and many rows share one line."""

import math

import pytest

from jobs.flags import Flag, FlagKind
from orchestrator.reporting.flags import WORDINGS, describe, description, heading, with_heading
from tests.support.golden import assert_golden


@pytest.mark.parametrize("kind", list(FlagKind))
def test_describe_knows_every_kind_with_and_without_a_value(kind):
    with_value, without = describe(Flag(kind, 0.5)), describe(Flag(kind))
    assert heading(kind)
    assert (with_value != without) is bool(WORDINGS[kind].sentence)
    assert "{}" not in with_value + without
    assert describe(Flag(kind, math.inf)) == without


def test_description_of_several_values_is_a_range():
    unstable = description(FlagKind.UNSTABLE, [0.3, 0.01, None, 0.02])
    assert unstable == "step time 95 % CI ±1.0 % to ±30 %"
    shared = description(FlagKind.SHARED_BEFORE, [2.0**30, 2.0**30])
    assert shared == "1 GiB of the GPU's memory were in use before the trial"


def test_every_flag_with_its_figure_is_the_recorded_text():
    lines = [with_heading(Flag(kind, value)) for kind in FlagKind for value in (0.351, 3.0)]
    assert_golden("flags.txt", "\n".join(lines))
