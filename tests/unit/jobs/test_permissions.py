"""Whatever publishes, reports, downloads or writes elsewhere is refused, however a trial comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import TrainingArguments

from jobs import __main__ as command
from jobs.permissions import allowed_arguments, refusal
from jobs.record import Outcome
from jobs.spec import Hook, TrialSpec, to_json
from jobs.techniques import AXES
from jobs.trial.run import run
from orchestrator.export import NotExportableError, export
from orchestrator.planning.arguments import runner_reason
from orchestrator.planning.config import ConfigError, load_config
from tests.conftest import build_tiny_spec

WIDE = "ａｔｔｎ＿ｉｍｐｌｅｍｅｎｔａｔｉｏｎ"
"""A name that Python reads as attn_implementation."""
REFUSED: dict[str, dict[str, Any]] = {
    "training_arguments": {
        "push_to_hub": True,
        "ｐush_to_hub": True,
        "hub_model_id": "me/mine",
        "report_to": ["wandb"],
        "output_dir": "/home/somebody/.ssh",
        "resume_from_checkpoint": "/tmp/pickles",
        "deepspeed": "/tmp/file.json",
        "accelerator_config": "/tmp/file.json",
        "trackio_space_id": "stranger/space",
        "enable_jit_checkpoint": True,
        "of_next_year": 1,
    },
    "deepspeed": {
        "wandb": {"enabled": True, "project": "x"},
        "tensorboard": {"output_path": "/srv"},
        "nebula": {"enabled": True},
        "flops_profiler": {"enabled": True, "output_file": "/srv/x"},
        "autotuning": {"enabled": True, "results_dir": "/srv"},
        "zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/srv"}},
    },
    "config": {
        "attn_implementation": "stranger/kernel",
        WIDE: "stranger/kernel",
        "_attn_implementation": "stranger/kernel",
        "＿attn_implementation": "stranger/kernel",
        "text_config": {"attn_implementation": "stranger/kernel"},
        "parts": [{"experts_implementation": "stranger/kernel"}],
        "auto_map": {"AutoModel": "stranger/code--file.Class"},
        "trust_remote_code": True,
    },
    "model_kwargs": {
        "attn_implementation": "stranger/kernel",
        "trust_remote_code": True,
        "weights_only": False,
    },
    "requires": {"hub_kernel:stranger/kernel": ""},
    "hooks": {
        "arguments": Hook("trl_sft_arguments", {"parameters": {"push_to_hub": True}}),
        "loop": Hook("trainer_loop", {"hub_model_id": "me/mine"}),
    },
}
CASES = [(part, key) for part, values in REFUSED.items() for key in values]


def naming(part: str, key: str) -> TrialSpec:
    """A trial with one value that it may not have."""
    spec, value = build_tiny_spec(), REFUSED[part][key]
    if part == "config":
        return replace(spec, model=replace(spec.model, config={key: value}))
    before = getattr(spec.settings, part)
    now = (*before, key) if part == "requires" else {**(before or {}), key: value}
    return replace(spec, settings=replace(spec.settings, **{part: now}))


def by_jobs(spec: TrialSpec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = folder / "record.json"
    file.write_text(json.dumps({"spec": to_json(spec)}))
    allowed = ["--trust-remote-code", "--allow-own-code"]
    monkeypatch.setattr("sys.argv", ["jobs", str(file), *allowed])
    monkeypatch.setattr(command, "_run", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        command.main()
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
@pytest.mark.parametrize(
    ("way", "ends_with"), [(by_jobs, "2"), (by_child, "permissions"), (by_export, "False")]
)
def test_no_way_in_takes_what_is_not_allowed(
    way: Callable[[TrialSpec, Path, pytest.MonkeyPatch], str],
    ends_with: str,
    part: str,
    key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert way(naming(part, key), tmp_path, monkeypatch) == ends_with


@pytest.mark.parametrize(
    ("part", "key"),
    [case for case in CASES if case[0] in {"training_arguments", "deepspeed", "config"}],
)
def test_a_config_names_nothing_that_is_not_allowed(part: str, key: str, tmp_path: Path) -> None:
    model: dict[str, Any] = {"task": "causal-lm", "architecture": "llama"}
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


def test_what_is_switched_off_may_stay() -> None:
    spec = build_tiny_spec()
    settings = replace(spec.settings, deepspeed={"tensorboard": {"enabled": False}, "fp16": {}})
    assert refusal(replace(spec, settings=settings)) == ""


def test_no_technique_names_what_is_refused() -> None:
    for axis in AXES.values():
        for name in axis.variants:
            assert refusal(build_tiny_spec({axis.name: name})) == "", name


def test_each_training_argument_is_allowed_or_has_a_reason() -> None:
    names = {field.name for field in fields(TrainingArguments) if field.init}
    assert {name for name in names - allowed_arguments() if runner_reason(name) is None} == set()
    assert {name for name in allowed_arguments() if runner_reason(name) is not None} == set()
