"""Units parsed from text and formatted for people."""

import math

import pytest

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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 * GIB),
        ("24GB", 24 * 10**9),
        ("24gb", 24 * 10**9),
        ("24G", 24 * 10**9),
        ("24gib", 24 * GIB),
        ("24Gi", 24 * GIB),
        (" 1.5 MiB ", 1.5 * MIB),
        ("24000000000", 24 * 10**9),
        (24000000000, 24 * 10**9),
        (24e9, 24 * 10**9),
        ("8B", 8),
    ],
)
def test_size_bytes_reads_units_of_both_bases(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize("value", [16, "24", 80.0])
def test_size_bytes_of_a_small_number_asks_for_its_unit(value):
    with pytest.raises(ValueError, match=f"needs a unit: {value}GiB .* or {value}GB"):
        size_bytes(value)


@pytest.mark.parametrize(
    "text",
    [
        "many",
        "-1GiB",
        "0B",
        0,
        True,
        None,
        1.5,
        math.nan,
        math.inf,
        "1GiB2",
        "16i",
        "1e3G",
        "9" * 999 + "G",
        1e300,
    ],
)
def test_size_bytes_refuses_what_is_no_size(text):
    with pytest.raises(ValueError, match="must be a size above zero"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300s", 300),
        ("5m", 300),
        ("5 min", 300),
        ("1h30m", 5400),
        ("1H 30M", 5400),
        ("1h 1s", 3601),
        ("2d", 172800),
        (2.5, 2.5),
        ("15", 15),
        ("1.5", 1.5),
    ],
)
def test_duration_seconds_reads_hours_minutes_and_seconds(text, seconds):
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "soon", "m", -1, True, math.inf])
def test_duration_seconds_refuses_what_is_no_time(text):
    with pytest.raises(ValueError, match="must be a time above zero"):
        duration_seconds(text)


def test_duration_seconds_beyond_a_year_is_refused():
    with pytest.raises(ValueError, match="at most a year"):
        duration_seconds(1e12)


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
