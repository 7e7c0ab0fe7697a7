"""Runs from strangers: whatever a record says, the exported files are inert or refused.

A run folder is shared, so every field of a record may be hostile. Each test exports such records
and compares the files with those of a harmless record of the same shape.
"""

import ast
import contextlib
import dataclasses
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from jobs.spec import (
    DatasetFile,
    DataSpec,
    Hook,
    LibrarySettings,
    ModelSpec,
    Needs,
    TrialSpec,
    UserCode,
)
from orchestrator.export import NotExportableError, export
from tests.hostile.runs import PYTHON, TEMPLATES
from tests.support.guarded_export import CANARY, run_guarded

PAYLOADS = (
    *PYTHON,
    *TEMPLATES,
    f"# coding: utf-7\n+AG8-pen('{CANARY}')",
    f"!!python/object/apply:os.system ['touch {CANARY}']",
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"; touch {CANARY} #",
    "--index-url https://example.org/simple",
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
TEXTS = st.one_of(st.sampled_from(PAYLOADS), st.text(max_size=30))
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
"""Whatever JSON can hold, and what it cannot: NaN, infinities, half surrogates."""
MAPPINGS = st.dictionaries(TEXTS, VALUES, max_size=3)
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


def _texts(spec: TrialSpec, label: str, notes: str) -> dict[str, str]:
    """The files of an export. Raises NotExportableError."""
    with tempfile.TemporaryDirectory() as folder:
        written = export(
            spec,
            Path(folder, "train"),
            label=label,
            peak_bytes=1,
            measured={notes: notes},
            notes=[notes],
            versions={"torch": label, "peft": notes},
        )
        return {path.name: path.read_text(encoding="utf-8") for path in written}


def _texts_or_rejected(spec: TrialSpec, label: str, notes: str) -> dict[str, str]:
    """The files of an export. If it refuses the trial, hypothesis draws another one."""
    try:
        return _texts(spec, label, notes)
    except NotExportableError:
        reject()


def _harmless(spec: TrialSpec) -> TrialSpec:
    """A trial of the same shape with plain values: what the template alone writes."""
    model = dataclasses.replace(spec.model, config={}, name_or_path="x")
    data = DataSpec(file=DatasetFile(path="x", format="json", max_length=8))
    return dataclasses.replace(spec, model=model, data=data)


class _LiteralsBlanked(ast.NodeTransformer):
    """Every literal becomes the same constant, and the keywords before literals disappear."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(0)

    def _container(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        is_literal = all(isinstance(child, ast.Constant) for child in children)
        return ast.Constant(0) if is_literal else node

    visit_List = visit_Tuple = visit_Dict = visit_Set = _container

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return node.operand if isinstance(node.operand, ast.Constant) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [
            given for given in node.keywords if not isinstance(given.value, ast.Constant)
        ]
        return node


def _skeleton(script: str) -> str:
    return ast.dump(_LiteralsBlanked().visit(ast.parse(script)))


def _exportable() -> st.SearchStrategy[TrialSpec]:
    """Hostile in every value that an export accepts: keys are names, so that most are written."""
    names = st.sampled_from(["hidden_size", "pad_token", "label2id", "x"])
    texts = TEXTS.filter(lambda text: "://" not in text and "::" not in text)
    files = st.builds(
        DatasetFile,
        path=texts,
        format=st.sampled_from(["json", "csv", "disk"]),
        columns=st.dictionaries(TEXTS, TEXTS, max_size=2),
        tokenizer=st.one_of(st.none(), TEXTS),
        max_length=st.integers(1, 512),
    )
    models = st.builds(
        ModelSpec,
        task=st.sampled_from(["causal-lm", "sequence-classification", "image-classification"]),
        config=st.dictionaries(names, VALUES, max_size=3),
        name_or_path=TEXTS,
        trust_remote_code=st.booleans(),
    )
    libraries = st.builds(
        LibrarySettings,
        training_arguments=st.fixed_dictionaries(
            {"run_name": TEXTS, "lr_scheduler_kwargs": MAPPINGS}
        ),
        deepspeed=st.one_of(st.none(), MAPPINGS),
        requires=st.lists(TEXTS.map("package:{}".format), max_size=2).map(tuple),
    )
    return st.builds(
        TrialSpec,
        choices=st.just({}),
        model=models,
        data=st.builds(DataSpec, file=files),
        settings=libraries,
        needs=st.builds(Needs, nvme_path=TEXTS),
    )


@settings(max_examples=40)
@given(_exportable(), TEXTS, TEXTS)
def test_exported_files_of_a_hostile_run_hold_its_values_as_data(spec, label, notes):
    texts = _texts_or_rejected(spec, label, notes)
    expected = _texts(_harmless(spec), "a label", "a note")
    assert _skeleton(texts["train.py"]) == _skeleton(expected["train.py"])
    nodes = ast.walk(ast.parse(texts["train.py"]))
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    assert {spec.model.name_or_path, spec.data.file.path} <= set(map(str, constants))
    _check_settings(texts, spec)
    _check_requirements(texts["requirements.txt"])
    _check_readme(texts["README.md"], _texts(spec, "a label", "a note")["README.md"])


def _check_settings(texts: Mapping[str, str], spec: TrialSpec) -> None:
    from_yaml = yaml.safe_load(texts["training_arguments.yaml"])
    from_json = json.loads(texts["training_arguments.json"], parse_constant=_refused)
    assert from_yaml == from_json
    assert from_yaml["run_name"] == spec.settings.training_arguments["run_name"]
    assert (from_yaml["output_dir"], from_yaml["report_to"]) == ("output", "none")
    assert set(yaml.safe_load(texts["accelerate.yaml"])) <= {
        "compute_environment", "debug", "deepspeed_config", "distributed_type", "machine_rank",
        "main_training_function", "mixed_precision", "num_machines", "num_processes", "use_cpu",
    }  # fmt: skip
    if "deepspeed.json" in texts:
        json.loads(texts["deepspeed.json"], parse_constant=_refused)


def _refused(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


REQUIREMENT = re.compile(r"[a-z-]+(==[0-9][0-9a-z.]*)?|# [^\n]*")


def _check_requirements(text: str) -> None:
    """Known packages alone, and comments."""
    lines = text.split("\n")
    assert lines.pop() == ""
    assert all(REQUIREMENT.fullmatch(line) for line in lines)
    known = {"torch", "transformers", "accelerate", "pyyaml", "datasets", "numpy", "deepspeed"}
    assert {line.partition("==")[0] for line in lines if line[0] != "#"} <= known


def _check_readme(readme: str, expected: str) -> None:
    """No markup of its own."""
    assert all(letter.isprintable() or letter == "\n" for letter in readme)
    assert _markdown_kinds(readme) == _markdown_kinds(expected)
    assert _code_blocks(readme) == _code_blocks(expected)


@pytest.mark.parametrize("name", ["# x", "> x", "- x", "1. x", "---", "***", "| x |", "~~~"])
def test_exported_readme_keeps_a_hostile_name_inside_its_line(name):
    readme = _texts(BASE, "a label", name)["README.md"]
    expected = _texts(BASE, "a label", "a note")["README.md"]
    assert _markdown_kinds(readme) == _markdown_kinds(expected)


def _markdown_kinds(text: str) -> list[str]:
    """The blocks of a page, and what stands in them beside text."""
    kinds = []
    for token in MarkdownIt().enable("table").parse(text):
        kinds.append(token.type)
        for child in token.children or ():
            if child.type in ("link_open", "image", "html_inline", "code_inline"):
                kinds.append(child.type)
    return kinds


def _code_blocks(text: str) -> list[str]:
    """What a reader copies into a shell."""
    return [token.content for token in MarkdownIt().parse(text) if token.type == "fence"]


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


@pytest.mark.parametrize("place", range(len(_hostile("x"))))
def test_exported_script_of_a_hostile_run_runs_inert(place, tmp_path):
    scripts = []
    for number, payload in enumerate(PAYLOADS):
        folder = tmp_path / str(number)
        spec = _with(BASE, *_hostile(payload)[place])
        with contextlib.suppress(NotExportableError):
            export(spec, folder, label=payload, notes=[payload], versions={"torch": payload})
            scripts.append(folder / "train.py")
    printed = run_guarded(scripts, tmp_path / "work")
    assert printed.split() == list(map(str, scripts))
    assert list((tmp_path / "work").iterdir()) == []


def test_the_guard_notices_code_that_runs(tmp_path):
    script = tmp_path / "train.py"
    harmless = "def model_config(*args): pass\nmake_model = make_dataset = model_config\n"
    script.write_text(f'open("{CANARY}", "w")\n{harmless}')
    run_guarded([script], tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").iterdir()] == [CANARY]
