"""Tables of plain values: how cells are written, and which columns are shown."""

import math

import pytest

from orchestrator.reporting.content import Column, Format, Table

TRIALS = [{"configuration": "batch 4"}, {"configuration": "batch 8"}, {"configuration": "batch 16"}]


@pytest.mark.parametrize(
    ("value", "format", "text"),
    [
        (None, Format.MEMORY, ""),
        (math.inf, Format.CI95, ""),
        (3 * 2**29, Format.MEBIBYTES, "1,536"),
        ("inferred", Format.NUMBER, "inferred"),
        (TRIALS, Format.TRIALS, "batch 4 and 2 others"),
        (TRIALS[:1], Format.TRIALS, "batch 4"),
        ([], Format.TRIALS, ""),
    ],
)
def test_column_writes_a_value_for_people(value, format, text):
    column = Column(key="key", heading="heading", format=format)
    assert column.text({"key": value}) == text


def test_column_writes_marks_only_before_a_figure():
    column = Column(key="speed", heading="speed", format=Format.NUMBER, marks="marks")
    assert column.text({"speed": 34.5, "marks": ["†", "h"]}) == "† h 34.5"
    assert column.text({"speed": 34.5, "marks": []}) == "34.5"
    assert column.text({"speed": None, "marks": ["†"]}) == ""


def test_column_tone_depends_on_what_is_better():
    memory = Column(key="ratio", heading="memory", format=Format.CHANGE, better="less")
    speed = Column(key="ratio", heading="speed", format=Format.CHANGE, better="more")
    assert [memory.tone({"ratio": ratio}) for ratio in (0.5, 1.001, 2.0)] == ["good", "", "bad"]
    assert [speed.tone({"ratio": ratio}) for ratio in (0.5, 1.001, 2.0)] == ["bad", "", "good"]
    assert speed.tone({}) == ""


def test_table_hides_columns_without_any_text():
    columns = tuple(Column(key=key, heading=key) for key in ("full", "partly", "empty"))
    table = Table(columns=columns, rows=({"full": "a", "partly": ""}, {"full": "b", "partly": "c"}))
    assert [column.key for column in table.shown_columns] == ["full", "partly"]
