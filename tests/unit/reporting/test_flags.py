"""Flags in words: every kind has its own, and many rows share one line."""

import math

import pytest

from jobs.flags import Flag, FlagKind
from orchestrator.reporting.flags import WORDINGS, describe, description, heading, with_heading


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        (Flag(FlagKind.UNSTABLE, 0.051), "unstable: step time 95 % CI ±5.1 %"),
        (
            Flag(FlagKind.LAUNCH_BOUND, 0.35),
            "launch-bound: kernel launches limited 35 % of the time",
        ),
        (Flag(FlagKind.THRASHING, 3.0), "thrashing: flushes of the allocator's cache: 3"),
        (Flag(FlagKind.SHARED_PROCESSES, 2), "shared GPU: other processes on the GPU: 2"),
        (Flag(FlagKind.LOSS_MISMATCH, 2.0), "loss mismatch: mean loss 2.00 times the reference's"),
        (
            Flag(FlagKind.LOSS_NOT_FINITE, 3),
            "loss not finite: the loss is not finite from step 3 on",
        ),
    ],
)
def test_with_heading_states_the_figure(flag, text):
    assert with_heading(flag) == text


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
