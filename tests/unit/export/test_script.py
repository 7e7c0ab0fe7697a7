"""train.py and README.md: what they say, and that a hostile spec cannot write code into them."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from jobs.spec import DatasetFile, DataSpec, Hook, ModelSpec, TrialSpec
from orchestrator.export.generated_code import NotExportableError
from orchestrator.export.script import _render, readme, train_script
from tests.conftest import SpecFactory

EVIL = 'x"""\n__import__("os").system("touch /tmp/export_canary")\n"""'


def _with_settings(spec: TrialSpec, **changes: Any) -> TrialSpec:
    return dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, **changes))


def _with_model(spec: TrialSpec, **changes: Any) -> TrialSpec:
    return dataclasses.replace(spec, model=dataclasses.replace(spec.model, **changes))


def _calls(text: str) -> set[str]:
    """The names of all functions that a script calls."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return {ast.unparse(call.func) for call in calls}


def test_script_says_where_the_users_model_and_data_go(tiny_spec: SpecFactory) -> None:
    text = train_script(tiny_spec(), "a test")
    assert "YOUR MODEL" in text
    assert "YOUR DATASET" in text


def test_script_explains_the_loss_of_an_accumulated_step(tiny_spec: SpecFactory) -> None:
    line = "# trainer.model_accepts_loss_kwargs = False"
    assert line in train_script(tiny_spec({"accumulation": 4}), "a test")
    assert line not in train_script(tiny_spec(), "a test")


def test_script_prints_the_rows_peak_beside_its_own(tiny_spec: SpecFactory) -> None:
    text = train_script(tiny_spec(), "a test", peak_bytes=12345)
    assert 'figures["measured_peak_allocated_bytes"] = 12345' in text


@pytest.mark.parametrize("label", [EVIL, "a\nb", "\\"])
def test_script_label_stays_in_the_docstring(tiny_spec: SpecFactory, label: str) -> None:
    text = train_script(tiny_spec(), label)
    assert _calls(text) == _calls(train_script(tiny_spec(), "a test"))
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("text", [EVIL, "', evil(), '", "{{ evil() }}", "{% evil %}"])
def test_script_hostile_text_stays_a_literal(tiny_spec: SpecFactory, text: str) -> None:
    file = DatasetFile(path=text, format="json", columns={text: text}, tokenizer=text, max_length=8)
    plain = DatasetFile(path="x", format="json", columns={"x": "x"}, tokenizer="x", max_length=8)
    model = ModelSpec(task="causal-lm", name_or_path=text, config={"pad_token": text})
    hostile = dataclasses.replace(tiny_spec(), model=model, data=DataSpec(file=file))
    harmless = dataclasses.replace(
        hostile,
        model=dataclasses.replace(model, name_or_path="x", config={"pad_token": "x"}),
        data=DataSpec(file=plain),
    )
    script = train_script(hostile, "a test")
    assert _calls(script) == _calls(train_script(harmless, "a test"))
    constants = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Constant)]
    assert text in {node.value for node in constants}


HOSTILE_MODELS: Mapping[str, dict[str, Any]] = {
    "key": {"config": {"a=evil(), b": 1}},
    "value": {"config": {"a": float("nan")}},
    "task": {"task": "evil()"},
    "trust": {"config": {"trust_remote_code": True}},
}
HOSTILE_SETTINGS: Mapping[str, dict[str, Any]] = {
    "dtype": {"model_kwargs": {"dtype": "float32, evil()"}},
    "keyword": {"model_kwargs": {"a)\nevil(": 1}},
    "trust": {"model_kwargs": {"trust_remote_code": True}},
    "unknown hook": {"hooks": {"model": Hook("evil"), "loop": Hook("trainer_loop")}},
    "unknown loop": {"hooks": {"loop": Hook("evil")}},
    "unknown place": {"hooks": {"evil": Hook("lora"), "loop": Hook("trainer_loop")}},
    "hook's keyword": {"hooks": {"optimizer": Hook("torch_adamw", {"a=evil(), foreach": True})}},
    "hook's value": {"hooks": {"optimizer": Hook("torch_adamw", {"foreach": float("inf")})}},
}


@pytest.mark.parametrize("case", HOSTILE_MODELS)
def test_script_hostile_model_is_not_exportable(tiny_spec: SpecFactory, case: str) -> None:
    with pytest.raises(NotExportableError):
        train_script(_with_model(tiny_spec(), **HOSTILE_MODELS[case]), "a test")


@pytest.mark.parametrize("case", HOSTILE_SETTINGS)
def test_script_hostile_settings_are_not_exportable(tiny_spec: SpecFactory, case: str) -> None:
    with pytest.raises(NotExportableError):
        train_script(_with_settings(tiny_spec(), **HOSTILE_SETTINGS[case]), "a test")


def test_templates_print_nothing_that_is_not_checked(tiny_spec: SpecFactory) -> None:
    context = {
        "label": "not checked",
        "hooks": {},
        "loop": "trainer",
        "measured": {},
        "notes": [],
        "uses_deepspeed": False,
        "accumulates": False,
    }
    with pytest.raises(NotExportableError, match="which is not checked"):
        _render("README.md.j2", context)


def test_readme_has_figures_and_notes_on_a_line_each(tiny_spec: SpecFactory) -> None:
    spec = tiny_spec({"adapter": "lora_r8"})
    text = readme(spec, "a test", {"memory": "3 GiB\n<b>"}, ["a note\n# a heading"])
    assert "- memory: 3 GiB ‹b>" in text.splitlines()
    assert "a note # a heading" in text.splitlines()
    assert "model, data, adapter and the Trainer" in text
