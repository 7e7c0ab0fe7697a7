"""Units parsed from text and formatted for people."""

import math
import re

import pytest
import yaml

from orchestrator.units import (
    GIB,
    MIB,
    change,
    duration,
    duration_seconds,
    error,
    memory,
    number,
    size_bytes,
)
from tests.support.commands import ROOT

READ = (ROOT / "tests/golden/units.txt").read_text(encoding="utf-8").splitlines()[1:]
READERS = {"size": size_bytes, "time": duration_seconds}


@pytest.mark.parametrize("line", READ)
def test_size_or_time_is_read_or_refused_in_a_sentence(line):
    text, _, expected = line.partition(" => ")
    ((kind, value),) = yaml.safe_load(text).items()
    if expected[0].isdigit():
        assert READERS[kind](value) == float(expected)
        return
    with pytest.raises(ValueError, match=re.escape(expected)):
        READERS[kind](value)


def test_size_of_very_many_digits_is_refused():
    with pytest.raises(ValueError, match="must be a size above zero"):
        size_bytes("9" * 999 + "G")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"),
        (512, "512 B"),
        (23.5 * GIB, "23.5 GiB"),
        (312 * MIB, "312 MiB"),
        (1.25 * GIB, "1.25 GiB"),
        (-3 * MIB, "−3 MiB"),
        (2000 * GIB, "2000 GiB"),
    ],
)
def test_memory_takes_the_unit_that_reads_best(size, text):
    assert memory(size) == text


def test_number_has_three_significant_digits():
    values = [345.4, 34.54, 3.454, 0.03454, 12345.0]
    assert [number(value) for value in values] == ["345", "34.5", "3.45", "0.0345", "12,345"]


def test_error_change_and_duration_read_as_people_write_them():
    assert [error(value) for value in (0.004, 0.12, None, math.inf)] == ["±0.4 %", "±12 %", "", ""]
    ratios = (0.52, 1.12, 1.004, 3.2)
    assert [change(ratio) for ratio in ratios] == ["−48 %", "+12 %", "±0 %", "×3.20"]
    seconds = (4.2, 200, 7500)
    assert [duration(value) for value in seconds] == ["4.2 s", "3 min 20 s", "2 h 05 min"]
