"""``python -m jobs FILE.json``: what it refuses, before anything of the file is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import __main__ as command
from jobs.spec import Hook, LibrarySettings, TrialSpec, UserCode, to_json
from jobs.techniques.hooks import UnknownHookError, bound
from tests.conftest import build_tiny_spec


def start(
    spec: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str
) -> list[TrialSpec]:
    """Run the command on a file that holds ``spec``; returns the trials that it would have run.

    ``spec`` is a spec, any other JSON value, or the text of the file itself.
    """
    file = folder / "record.json"
    if isinstance(spec, TrialSpec):
        file.write_text(json.dumps(to_json(spec)))
    elif isinstance(spec, str):
        file.write_text(spec)
    else:
        file.write_text(json.dumps(spec))
    started: list[TrialSpec] = []
    monkeypatch.setattr(command, "_run", lambda spec, result, phase: started.append(spec))
    monkeypatch.setattr("sys.argv", ["jobs", str(file), *options])
    command.main()
    return started


def with_remote_code() -> TrialSpec:
    spec = build_tiny_spec()
    return replace(spec, model=replace(spec.model, trust_remote_code=True))


def with_attention_of_the_hub() -> TrialSpec:
    spec = build_tiny_spec()
    settings = replace(
        spec.settings, model_kwargs={"attn_implementation": "kernels-community/flash-attn2"}
    )
    return replace(spec, settings=settings)


def with_own_code() -> TrialSpec:
    own = UserCode(callbacks=("os:abort",), folder="/stranger")
    return replace(build_tiny_spec(), own_code=own)


@pytest.mark.parametrize(
    ("make", "option", "other"),
    [
        (with_remote_code, "--trust-remote-code", "--allow-own-code"),
        (with_attention_of_the_hub, "--trust-remote-code", "--allow-own-code"),
        (with_own_code, "--allow-own-code", "--trust-remote-code"),
    ],
)
def test_main_runs_foreign_code_with_its_option_only(
    make: Callable[[], TrialSpec],
    option: str,
    other: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = {"spec": to_json(make()), "outcome": "ok"}
    with pytest.raises(SystemExit) as ended:
        start(record, tmp_path, monkeypatch, other)
    assert ended.value.code == 2
    assert f"to allow that, give {option}" in capsys.readouterr().err
    assert start(record, tmp_path, monkeypatch, option) == [make()]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no trial of this version"),
        ("[1, 2]", "holds no trial of this version"),
        ('{"spec": {}}', "holds no trial of this version"),
        ('{"spec": {"model": 3}}', "holds no trial of this version"),
        (build_tiny_spec(seed=2**32), "measure.seed is 4294967296: it must be from 0 to"),
        (build_tiny_spec(timeout_seconds=1e12), "it must be above zero and at most a year"),
    ],
)
def test_main_says_what_is_wrong_with_a_file(
    content: Any,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        start(content, tmp_path, monkeypatch)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("name", ["os:system", "jobs.loops.trainer:train", "subprocess.run"])
def test_bound_calls_nothing_but_registered_hooks(name: str) -> None:
    hook = Hook(name, {"command": "touch /tmp/harmed"})
    spec = replace(build_tiny_spec(), settings=LibrarySettings(hooks={"loop": hook}))
    with pytest.raises(UnknownHookError, match="no hook is named"):
        bound(spec, "loop")
