"""Runs from strangers: whatever a record says, the exported files are inert or refused.

A run folder is shared, so every field of a record may be hostile. Each test exports such records
and compares the files with those of a harmless record of the same shape.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

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
    MeasureSpec,
    ModelSpec,
    Needs,
    SyntheticData,
    TrialSpec,
    UserCode,
)
from orchestrator import recommend
from orchestrator.export import NotExportableError, export
from tests.support.guarded_export import CANARY, run_guarded
from tests.support.records import make_record, write_run

PAYLOADS = (
    f'open("{CANARY}", "w")',
    f'x"""\nopen("{CANARY}", "w")\n"""',
    f"x'\nopen('{CANARY}', 'w')\n'",
    f'x"); open("{CANARY}", "w"); ("',
    f'x=open("{CANARY}", "w"), y',
    f"x\n    open('{CANARY}', 'w')\n",
    f"# coding: utf-7\n+AG8-pen('{CANARY}')",
    f"{{{{ cycler.__init__.__globals__.os.system('touch {CANARY}') }}}}",
    f"{{% set x = open('{CANARY}') %}}",
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
KEYS = st.one_of(
    TEXTS, st.sampled_from(["hidden_size", "attn_implementation", "auto_map", "dtype"])
)
MAPPINGS = st.dictionaries(KEYS, VALUES, max_size=3)
HOOKS = st.builds(
    Hook, st.one_of(TEXTS, st.sampled_from(["lora", "torch_adamw", "only_kernel"])), MAPPINGS
)


def _lawless() -> st.SearchStrategy[TrialSpec]:
    """Trials with every field from a stranger who keeps to no rule; nearly all are refused."""
    models = st.builds(
        ModelSpec,
        task=st.one_of(st.sampled_from(["causal-lm", "image-classification"]), TEXTS),
        architecture=st.one_of(st.none(), TEXTS),
        config=MAPPINGS,
        name_or_path=st.one_of(st.none(), TEXTS),
        trust_remote_code=st.one_of(st.booleans(), VALUES),
    )
    files = st.builds(
        DatasetFile,
        path=TEXTS,
        format=st.one_of(st.sampled_from(["json", "disk"]), TEXTS),
        columns=st.dictionaries(TEXTS, TEXTS, max_size=2),
        tokenizer=st.one_of(st.none(), TEXTS),
        max_length=VALUES,
    )
    synthetic = st.builds(
        SyntheticData, sequence_length=VALUES, samples=VALUES, padding=st.one_of(VALUES)
    )
    places = st.one_of(st.sampled_from(["model", "optimizer", "loop", "kernels"]), TEXTS)
    libraries = st.builds(
        LibrarySettings,
        training_arguments=st.dictionaries(
            st.one_of(st.sampled_from(["optim", "run_name", "learning_rate"]), TEXTS),
            VALUES,
            max_size=3,
        ),
        deepspeed=st.one_of(st.none(), MAPPINGS),
        model_kwargs=st.one_of(st.just({}), MAPPINGS),
        hooks=st.dictionaries(places, HOOKS, max_size=2),
        requires=st.lists(TEXTS.map("package:{}".format), max_size=2).map(tuple),
    )
    data = st.one_of(st.builds(DataSpec, file=files), st.builds(DataSpec, synthetic=synthetic))
    return st.builds(
        TrialSpec,
        choices=st.just({}),
        model=models,
        data=data,
        settings=libraries,
        measure=st.builds(MeasureSpec, seed=VALUES),
        needs=st.builds(Needs, gpus=st.integers(0, 1), nvme_path=TEXTS),
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


BASE = TrialSpec(
    choices={},
    model=ModelSpec(task="causal-lm", name_or_path="x"),
    data=DataSpec(file=DatasetFile(path="x", format="json", tokenizer="x")),
    settings=LibrarySettings(),
)


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


def _harmless(spec: TrialSpec) -> TrialSpec:
    """A trial of the same shape with plain values: what the template alone writes."""
    model = dataclasses.replace(
        spec.model,
        architecture="bert" if spec.model.name_or_path is None else None,
        config={},
        name_or_path=None if spec.model.name_or_path is None else "x",
    )
    data = spec.data
    if data.file is not None:
        file = dataclasses.replace(data.file, path="x", columns={}, tokenizer=None, max_length=8)
        data = DataSpec(file=file)
    return dataclasses.replace(spec, model=model, data=data)


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


@settings(max_examples=60, deadline=None)
@given(_exportable(), TEXTS, TEXTS)
def test_exported_files_of_a_hostile_run_hold_its_values_as_data(
    spec: TrialSpec, label: str, notes: str
) -> None:
    texts = _texts_or_rejected(spec, label, notes)
    expected = _texts(_harmless(spec), "a label", "a note")
    assert _skeleton(texts["train.py"]) == _skeleton(expected["train.py"])
    constants = [node.value for node in _constants(texts["train.py"])]
    assert {spec.model.name_or_path, spec.data.file.path} <= {
        value for value in constants if isinstance(value, str)
    }
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


@st.composite
def _specs(draw: st.DrawFn) -> TrialSpec:
    """Trials that an export would accept, but for one field from a stranger."""
    accepted = draw(_exportable())
    lawless = draw(_lawless())
    name = draw(st.sampled_from(["model", "data", "settings", "measure", "needs"]))
    part = getattr(lawless, name)
    if name != "data":
        # One field is enough: with several, the first to be refused hides the others.
        field = draw(st.sampled_from([field.name for field in dataclasses.fields(part)]))
        part = dataclasses.replace(getattr(accepted, name), **{field: getattr(part, field)})
    return dataclasses.replace(accepted, **{name: part})


@settings(max_examples=40, deadline=None)
@given(_specs(), TEXTS, TEXTS)
def test_exported_script_of_a_hostile_run_is_the_template_and_literals(
    spec: TrialSpec, label: str, notes: str
) -> None:
    texts = _texts_or_rejected(spec, label, notes)
    expected = _texts(_harmless(spec), "a label", "a note")
    assert _skeleton(texts["train.py"]) == _skeleton(expected["train.py"])


def _constants(script: str) -> Iterator[ast.Constant]:
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Constant):
            yield node


@pytest.mark.parametrize("name", ["# x", "> x", "- x", "1. x", "---", "***", "| x |", "~~~"])
def test_exported_readme_keeps_a_hostile_name_inside_its_line(name: str) -> None:
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


def _variants_of(text: str) -> Mapping[str, TrialSpec]:
    """The base trial with one field hostile."""
    data = BASE.data.file
    hostile_data = {
        "path": {"path": text},
        "format": {"format": text},
        "columns": {"columns": {text: text}},
        "tokenizer": {"tokenizer": text},
    }
    hostile_models = {
        "name": {"name_or_path": text},
        "architecture": {"name_or_path": None, "architecture": text},
        "config key": {"config": {text: 1}},
        "config value": {"config": {"x": [{text: text}]}},
        "task": {"task": text},
    }
    hostile_settings = {
        "argument": {"training_arguments": {text: 1}},
        "argument's value": {"training_arguments": {"run_name": text}},
        "dtype": {"model_kwargs": {"dtype": text}},
        "model keyword": {"model_kwargs": {text: 1}},
        "attention": {"model_kwargs": {"attn_implementation": text}},
        "hook": {"hooks": {"model": Hook(text)}},
        "hook's place": {"hooks": {text: Hook("lora")}},
        "hook's keyword": {"hooks": {"optimizer": Hook("torch_adamw", {text: 1})}},
        "hook's value": {"hooks": {"model": Hook("lora", {"rank": text})}},
        "DeepSpeed": {"deepspeed": {text: text}},
    }
    specs = {}
    for name, changes in hostile_data.items():
        file = dataclasses.replace(data, **changes)
        specs[name] = dataclasses.replace(BASE, data=DataSpec(file=file))
    for name, changes in hostile_models.items():
        model = dataclasses.replace(BASE.model, **changes)
        specs[name] = dataclasses.replace(BASE, model=model)
    for key in ("trainer", "collator", "entry"):
        specs[f"own {key}"] = dataclasses.replace(BASE, own_code=UserCode(**{key: text}))
    own = UserCode(callbacks=(f"json:{text}", text), folder=text, digest=text)
    specs["own callbacks"] = dataclasses.replace(BASE, own_code=own)
    hooks = {
        "rows": Hook("trl_sft_rows", {"parameters": {"eos_token": text}}),
        "loop": Hook("trl_sft_loop"),
    }
    trl_settings = dataclasses.replace(BASE.settings, hooks=hooks)
    specs["TRL's parameter"] = dataclasses.replace(BASE, settings=trl_settings)
    specs["loss of pairs"] = _of_pairs("dpo", text)
    specs["trainer of pairs"] = _of_pairs(text, "ipo")
    for name, changes in hostile_settings.items():
        chosen = dataclasses.replace(BASE.settings, **changes)
        specs[name] = dataclasses.replace(BASE, settings=chosen)
    return specs


def _of_pairs(trainer: str, loss: str) -> TrialSpec:
    """A trial that names a preference trainer, with a loss."""
    arguments = {"trainer": trainer, "parameters": {"loss_type": loss}}
    hooks = {
        "preferences": Hook("trl_preference_rows", arguments),
        "loop": Hook("trl_preference_loop", {"trainer": trainer}),
    }
    return dataclasses.replace(BASE, settings=dataclasses.replace(BASE.settings, hooks=hooks))


@pytest.mark.parametrize("place", _variants_of("x"))
def test_exported_script_of_a_hostile_run_runs_inert(place: str, tmp_path: Path) -> None:
    scripts = []
    for number, payload in enumerate(PAYLOADS):
        folder = tmp_path / str(number)
        spec = _variants_of(payload)[place]
        with contextlib.suppress(NotExportableError):
            export(spec, folder, label=payload, notes=[payload], versions={"torch": payload})
            scripts.append(folder / "train.py")
    printed = run_guarded(scripts, tmp_path / "work")
    assert printed.split() == list(map(str, scripts))
    assert list((tmp_path / "work").iterdir()) == []


def test_the_guard_notices_code_that_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    harmless = "def model_config(*args): pass\nmake_model = make_dataset = model_config\n"
    script.write_text(f'open("{CANARY}", "w")\n{harmless}')
    run_guarded([script], tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").iterdir()] == [CANARY]


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_recommend_exports_a_hostile_run_inert_or_not_at_all(payload: str, tmp_path: Path) -> None:
    record = make_record(speed=100.0, optimizer=payload)
    model = dataclasses.replace(record.spec.model, config={"x": payload})
    spec = dataclasses.replace(record.spec, model=model)
    environment = {**record.environment, "torch": payload}
    hostile = dataclasses.replace(record, spec=spec, environment=environment)
    try:
        run = write_run(tmp_path / "run", [hostile])
    except UnicodeEncodeError:
        pytest.skip("no run folder can hold the text")
    status = recommend.main([str(run), "--export", str(tmp_path / "train")])
    if status == 0:
        run_guarded([tmp_path / "train" / "train.py"], tmp_path / "work")
        assert list((tmp_path / "work").iterdir()) == []
    else:
        assert status in (1, 2)
        assert not (tmp_path / "train").exists()
