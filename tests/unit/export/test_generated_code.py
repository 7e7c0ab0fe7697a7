"""Pieces of generated code: nothing in them can become code of its own."""

import ast
import tokenize
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.export.generated_code import (
    NotExportableError,
    arguments,
    dtype,
    keywords,
    literal,
    name,
    one_line,
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
).filter(lambda value: "inf" not in repr(value))


@given(PLAIN)
def test_literal_evaluates_to_the_value(value):
    assert ast.literal_eval(literal(value)) == value
    assert "\n" not in literal(value)


class Hostile:
    """An object whose representation is code."""

    def __repr__(self) -> str:
        return "__import__('os').system('true')"


class HostileText(str):
    """A text whose representation is code."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "__import__('os').system('true')"


@pytest.mark.parametrize(
    "value",
    [
        Hostile(),
        HostileText("x"),
        [Hostile()],
        {"a": Hostile()},
        {Hostile(): 1},
        float("inf"),
        b"x",
    ],
    ids=lambda value: type(value).__name__,
)
def test_literal_refuses_what_is_not_plain(value):
    with pytest.raises(NotExportableError):
        literal(value)


@pytest.mark.parametrize("text", ["", "a b", "a=1, b", "class", "x)\nimport os", "1a", "a.b"])
def test_name_refuses_what_is_no_name(text):
    with pytest.raises(NotExportableError):
        name(text)
    with pytest.raises(NotExportableError):
        keywords({text: 1})


@pytest.mark.parametrize("text", ["float32 and evil()", "load", "", "hub.load"])
def test_dtype_refuses_what_is_not_in_its_list(text):
    with pytest.raises(NotExportableError):
        dtype(text)


def test_arguments_refuse_a_keyword_given_twice():
    with pytest.raises(NotExportableError, match="given twice"):
        arguments([*keywords({"a": 1}), *keywords({"a": 2})])


@given(st.text())
def test_one_line_cannot_end_a_docstring_or_a_comment(text):
    line = one_line(text)
    code = f'"""Measured: {line}."""\n# {line}\nVALUE = 1\n'
    tree = ast.parse(code)
    assert len(tree.body) == 2
    assert ast.literal_eval(tree.body[0].value) == f"Measured: {line}."
    comments = [
        token
        for token in tokenize.generate_tokens(StringIO(code).readline)
        if token.type == tokenize.COMMENT
    ]
    assert len(comments) == 1


@pytest.mark.parametrize("text", ['"""\nevil()', "a\\", "<script>", "`code`", "[x](http://y)"])
def test_one_line_has_no_markup(text):
    assert not set(one_line(text)) & set('"\\<`[]\n')


@given(st.text())
def test_reason_of_a_refusal_is_safe_to_print(text):
    assert str(NotExportableError(f"no hook is named {text}")).isprintable()
