"""The registry: names of rows, their parameters in written form, and hooks."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.techniques import AXES
from jobs.techniques.hooks import MODULES_VARIABLE, UnknownHookError, bound, hook, registered
from jobs.techniques.written_form import ParametersError, read, written
from tests.conftest import build_tiny_spec
from tests.support.commands import ROOT


@pytest.mark.parametrize("name", ["os:system", "subprocess.run", "user_code_problem"])
def test_registered_with_a_name_that_is_no_hook_raises(name):
    """A service is no hook: a spec from a run folder must not import the code that it names."""
    with pytest.raises(UnknownHookError, match=f'no hook is named "{name}"'):
        registered(name)


def test_registered_imports_a_nodes_modules(tmp_path, monkeypatch):
    code = "from jobs.techniques.hooks import hook\n@hook('mine')\ndef mine(): return 7\n"
    (tmp_path / "my_hooks.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(MODULES_VARIABLE, "my_hooks")
    assert registered("mine")() == 7


def test_hook_with_a_name_that_is_taken_raises():
    with pytest.raises(ValueError, match="two hooks are named lora"):
        hook("lora")(Path.cwd)


def test_bound_fills_in_the_arguments_of_the_spec():
    spec = build_tiny_spec({"adapter": "lora_r8"})
    adapt = bound(spec, "model")
    assert adapt.keywords == {"rank": 8}
    assert bound(spec, "optimizer") is None


ACTIVATIONS = AXES["activations"]
MISSPELT = (ROOT / "tests/golden/misspelt_techniques.txt").read_text().splitlines()[1:]
"""Thirteen of budgets, then written forms."""


@pytest.mark.parametrize(
    ("name", "share"), [("budget_0.05", 0.05), ("budget_0.37", 0.37), ("budget_0.001", 0.001)]
)
def test_name_with_a_number_is_a_row_with_that_number(name, share):
    variant = ACTIVATIONS.variant(name)
    assert variant.hooks["partitioner"].arguments == {"budget": share}
    assert f"{share * 100:g} %" in variant.doc


@pytest.mark.parametrize("name", [*MISSPELT[:13], "budget_0.5 ", "budget_0.5\n"])
def test_second_spelling_of_a_number_is_unknown(name):
    assert not ACTIVATIONS.fits_pattern(name)
    with pytest.raises(KeyError):
        ACTIVATIONS.variant(name)


def test_listed_name_is_the_row_that_the_pattern_makes():
    listed = [name for name in ACTIVATIONS.variants if name.startswith("budget_")]
    assert listed
    for name in listed:
        assert ACTIVATIONS.variants[name] == ACTIVATIONS.pattern.variant(name)


NAMES = st.text("r_9", max_size=4).map("a{}".format)
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
def test_written_form_is_read_back_as_it_was(name, parameters):
    text = written(name, parameters)
    assert read(text) == (name, parameters)
    assert written(*read(text)) == text


def test_written_form_sorts_and_quotes_only_where_needed():
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


@pytest.mark.parametrize("text", [*MISSPELT[13:], ""])
def test_read_malformed_text_says_what_is_wrong(text):
    with pytest.raises(ParametersError, match=r"\w"):
        read(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_written_value_that_is_not_plain_is_refused(value):
    with pytest.raises(ParametersError):
        written("lora", {"r": value})
