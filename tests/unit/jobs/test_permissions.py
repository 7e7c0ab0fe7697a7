"""What a trial may not have, perhaps from a stranger, is refused, however it comes."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import TrainingArguments

from jobs import __main__ as command
from jobs.permissions import allowed_arguments, refusal
from jobs.record import Outcome
from jobs.spec import DatasetFile, DataSpec, Hook, TrialSpec, UserCode, to_json
from jobs.spec.limits import MAX_SEED, MAX_TIMEOUT_SECONDS, problem_of
from jobs.techniques import AXES
from jobs.trial.run import run
from orchestrator.export import NotExportableError, export
from orchestrator.planning.choices.arguments import runner_reason
from orchestrator.planning.config import ConfigError, load_config
from tests.conftest import build_tiny_spec
from tests.support.commands import ROOT


def start(
    spec: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str
) -> list[TrialSpec]:
    """Run the command on a file that holds a spec, or a text; the trials that it would run."""
    file = folder / "record.json"
    file.write_text(spec if isinstance(spec, str) else json.dumps(to_json(spec)))
    started = []
    monkeypatch.setattr(command, "_run", lambda spec, result, phase: started.append(spec))
    monkeypatch.setattr("sys.argv", ["jobs", str(file), *options])
    command.main()
    return started


SPEC = build_tiny_spec()
HUB_ATTENTION = {"attn_implementation": "kernels-community/flash-attn2"}
OPTIONS = ("--trust-remote-code", "--allow-own-code")
OWN_CODE = UserCode(callbacks=("os:abort",), folder="/stranger")


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (replace(SPEC, model=replace(SPEC.model, trust_remote_code=True)), OPTIONS),
        (replace(SPEC, settings=replace(SPEC.settings, model_kwargs=HUB_ATTENTION)), OPTIONS),
        (replace(SPEC, own_code=OWN_CODE), OPTIONS[::-1]),
    ],
)
def test_main_runs_foreign_code_with_its_option_only(spec, options, tmp_path, monkeypatch, capsys):
    option, other = options
    record = json.dumps({"spec": to_json(spec), "outcome": "ok"})
    with pytest.raises(SystemExit) as ended:
        start(record, tmp_path, monkeypatch, other)
    assert ended.value.code == 2
    assert f"to allow that, give {option}" in capsys.readouterr().err
    assert start(record, tmp_path, monkeypatch, option) == [spec]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no trial of this version"),
        ("[1, 2]", "holds no trial of this version"),
        ('{"spec": {}}', "holds no trial of this version"),
        ('{"spec": {"model": 3}}', "holds no trial of this version"),
        (build_tiny_spec(seed=2**32), "measure.seed is 4294967296: it must be from 0 to"),
    ],
)
def test_main_says_what_is_wrong_with_a_file(content, sentence, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        start(content, tmp_path, monkeypatch)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


REFUSED = yaml.safe_load((ROOT / "tests/golden/refused.yaml").read_text(encoding="utf-8"))
CASES = [(part, key) for part, values in REFUSED.items() for key in values]


def naming(part: str, key: str) -> TrialSpec:
    """A trial with one value that it may not have."""
    value = REFUSED[part][key]
    if part == "hooks":
        value = Hook(**value)
    if part == "config":
        return replace(SPEC, model=replace(SPEC.model, config={key: value}))
    now = (key,) if part == "requires" else {key: value}
    return replace(SPEC, settings=replace(SPEC.settings, **{part: now}))


def by_jobs(spec: TrialSpec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    with pytest.raises(SystemExit) as ended:
        start(spec, folder, monkeypatch, "--trust-remote-code", "--allow-own-code")
    return str(ended.value.code)


def by_child(spec: TrialSpec, folder: Path, _: pytest.MonkeyPatch) -> str:
    record = run(spec, lambda _: None, scratch=folder)
    assert record.outcome is Outcome.UNSUPPORTED
    return record.rule


def by_export(spec: TrialSpec, folder: Path, _: pytest.MonkeyPatch) -> str:
    with pytest.raises(NotExportableError):
        export(spec, folder / "training", label="a test")
    return str((folder / "training").exists())


@pytest.mark.parametrize(("part", "key"), CASES)
def test_refusal_of_what_is_not_allowed_names_the_part(part, key):
    assert part in refusal(naming(part, key))


@pytest.mark.parametrize(
    ("way", "ends_with"), [(by_jobs, "2"), (by_child, "permissions"), (by_export, "False")]
)
def test_no_way_in_takes_what_is_not_allowed(way, ends_with, tmp_path, monkeypatch):
    assert way(naming("hooks", "loop"), tmp_path, monkeypatch) == ends_with


@pytest.mark.parametrize(
    ("part", "key"),
    [
        (part, key)
        for part, key in CASES
        if part in {"training_arguments", "deepspeed", "config"} and key != "deepspeed"
    ],
)
def test_a_config_names_nothing_that_is_not_allowed(part, key, tmp_path):
    model = {"task": "causal-lm", "architecture": "llama"}
    value = {key: REFUSED[part][key]}
    model |= {"config": value} if part == "config" else {}
    document = {"model": model, "axes": {"micro_batch": [1]}}
    document |= {part: value} if part != "config" else {}
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(document, allow_unicode=True))
    if part == "training_arguments" and runner_reason(key) is not None:
        # What a measurement decides itself is left aside, and named.
        config = load_config(path)
        assert key not in config.training_arguments
        assert key in "".join(config.notes)
        return
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert key in str(refused.value)


def test_what_is_switched_off_may_stay():
    settings = replace(SPEC.settings, deepspeed={"tensorboard": {"enabled": False}, "fp16": {}})
    assert refusal(replace(SPEC, settings=settings)) == ""


def test_no_technique_names_what_is_refused():
    for axis in AXES.values():
        for name in axis.variants:
            assert refusal(build_tiny_spec({axis.name: name})) == "", name


def test_each_training_argument_is_allowed_or_has_a_reason():
    names = {field.name for field in fields(TrainingArguments) if field.init}
    assert {name for name in names - allowed_arguments() if runner_reason(name) is None} == set()
    both = {name for name in allowed_arguments() if runner_reason(name) is not None}
    # The axis sharding sets them. A user's own are left aside, because a file for several GPUs may
    # well be measured on one.
    assert both == {"fsdp", "fsdp_config"}


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("seed", (0, MAX_SEED), "^$"),
        ("timeout_seconds", (1e-9, MAX_TIMEOUT_SECONDS), "^$"),
        ("seed", (-1, 2**32, 2**80), "measure.seed is .*: it must be from 0 to 4294967295, the"),
        (
            "timeout_seconds",
            (0.0, -1.0, 1e12, float("inf"), float("nan")),
            "it must be above zero and at most a year$",
        ),
    ],
)
def test_problem_of_a_number_names_its_range(name, values, said):
    for value in values:
        assert re.search(said, problem_of(build_tiny_spec(**{name: value})))


def test_problem_of_an_unknown_data_format_names_the_known():
    file = DatasetFile(path="x", format="evil/loader.py")
    assert problem_of(replace(SPEC, data=DataSpec(file=file))) == (
        "data.file.format is 'evil/loader.py': it must be one of parquet, json, csv, arrow, disk, "
        "imagefolder"
    )


@pytest.mark.parametrize("key", REFUSED["deepspeed"])
def test_deepspeed_among_arguments_names_nothing_that_is_not_allowed(key, tmp_path):
    inner = {"deepspeed": {key: REFUSED["deepspeed"][key]}}
    document = {
        "model": {"task": "causal-lm", "architecture": "llama"},
        "training_arguments": inner,
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="deepspeed"):
        load_config(path)
