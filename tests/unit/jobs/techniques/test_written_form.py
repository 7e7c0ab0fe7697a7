"""The written form of a technique with parameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.techniques.written_form import ParametersError, read, written

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(name=NAMES, parameters=st.dictionaries(NAMES, VALUES, max_size=4))
def test_written_form_is_read_back_and_written_the_same(
    name: str, parameters: dict[str, Any]
) -> None:
    text = written(name, parameters)
    assert read(text) == (name, parameters)
    assert written(*read(text)) == text


def test_written_form_sorts_and_quotes_only_where_needed() -> None:
    parameters = {
        "use_dora": True,
        "r": 16,
        "target_modules": ["q_proj", ".*_(q|v)"],
        "bias": "true",
    }
    assert written("lora", parameters) == (
        'lora(bias="true",r=16,target_modules=[q_proj,".*_(q|v)"],use_dora=true)'
    )
    assert written("lora", {}) == "lora"


@pytest.mark.parametrize(
    "text",
    [
        "lora(r=16",
        "lora(r=16))",
        "lora(r=)",
        "lora(=16)",
        "lora(r=1,r=2)",
        "lora(r=1 s=2)",
        "lora(r=[1,2)",
        'lora(r="a)',
        "lora(r=99999999999999999999)",
        "lora(r=1e999)",
        f"lora(r={'[' * 50}{']' * 50})",
        "(r=1)",
        "",
    ],
)
def test_read_malformed_text_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ParametersError, match=r"\w"):
        read(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_written_value_that_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(ParametersError):
        written("lora", {"r": value})
