"""Every command in the documentation is run; what needs a GPU, a cluster or the network is parsed
and planned.
"""

import ast
import contextlib
import doctest
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from jobs.node.environment import cores
from jobs.techniques import AXES
from orchestrator.__main__ import verbs
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.docs.blocks import LINKING, NEEDS, PAGES, Block, blocks, calls, links, parser_of, spans
from tests.support.commands import ROOT
from tests.support.fresh_processes import printed_by_python, waiting_parent

SHOWN = ("", "text")
"""Languages of blocks that say nothing to type."""
STEPS = 3
"""Fewer than a page's sweeps count: their figures are those of this machine at this moment."""
_EQUAL_OUTPUT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the repository that a test may write in."""
    for path in ROOT.iterdir():
        if path.name not in ("runs", ".venv", ".git"):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def run_shell(
    command: str, expected: str, folder: Path, processes: ForkServerContext, parents: Path
) -> None:
    """Run a command; where the page shows its output, it is that output (``...`` stands for
    anything).

    Modules and scripts run in processes that have the libraries already, and so do trials. Sweeps
    run here, on the Ray of this worker.
    """
    variables = {
        **os.environ,
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    sweep = re.fullmatch(r"python -m (orchestrator\.(?:sweep|batch_size)) (.*)", command)
    python = re.fullmatch(r"python (?:-m )?+(.*)", command)
    if sweep and "--dry-run" not in command:
        verb = importlib.import_module(sweep[1])
        with (
            waiting_parent(processes, parents, cores(), steps=STEPS),
            contextlib.redirect_stdout(io.StringIO()) as printed,
            contextlib.redirect_stderr(io.StringIO()) as errors,
        ):
            status = verb.main(shlex.split(sweep[2]))
        ran = subprocess.CompletedProcess(command, status, printed.getvalue(), errors.getvalue())
    elif python:
        ran = printed_by_python(processes, shlex.split(python[1]), folder, variables)
    else:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, f"$ {command}\n{ran.stdout}\n{ran.stderr}"
    shown = doctest.OutputChecker().check_output(expected, ran.stdout, _EQUAL_OUTPUT)
    assert not expected or shown, (
        f"$ {command}\nthe page shows\n{expected}\nand it prints\n{ran.stdout}"
    )


def plan_shell(command: str, folder: Path) -> None:
    """What can be said of a command without running it: its grammar, its files, its arguments, its
    plan.
    """
    subprocess.run(["bash", "-nc", command], check=True)
    missing = [
        word
        for word in shlex.split(command, comments=True)
        if is_ours(word) and not (folder / word).exists()
    ]
    assert not missing, f"no such file in the repository: {missing}"
    if command.startswith("make "):
        subprocess.run(
            ["make", "--dry-run", *command.split()[1:2]],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    for verb, arguments in calls(command):
        config = getattr(parser_of(verb).parse_args(arguments), "config", None)
        if config is not None and str(config) != "CONFIG":
            assert plan(load_config(folder / config)).trials


def is_ours(word: str) -> bool:
    """Whether a word of a command is a file of the repository's."""
    return word.startswith(("configs/", "deploy/", "docs/", "tests/"))


def read_yaml(code: str, folder: Path) -> None:
    """Put a file where its first line says; plan a sweep, whole or laid over a small one."""
    named, content = code.partition("\n")[0].removeprefix("# "), yaml.safe_load(code)
    path = folder / (named if named.endswith((".yaml", ".yml")) else "snippet.yaml")
    if "jobs" in content:  # a workflow of GitHub's: its commands run where it does
        for step in (step for job in content["jobs"].values() for step in job["steps"]):
            plan_shell(step.get("run", ""), folder)
        return
    small = yaml.safe_load((ROOT / "configs/quickstart.yaml").read_text())
    text = code if "model" in content else yaml.safe_dump({**small, **content})
    path.write_text(text)
    assert plan(load_config(path)).trials


def run(block: Block, folder: Path, names: dict[str, Any], *processes: Any) -> None:
    """Run a block in a reader's folder, or as much of it as can be.

    ``names`` are those of the page's Python; ``processes`` are the last arguments of ``run_shell``.
    """
    if block.language == "yaml" and block.needs:
        yaml.safe_load(block.code)
    elif block.language == "yaml":
        read_yaml(block.code, folder)
    elif block.language == "json":
        json.loads(block.code)
    elif block.language == "python":
        tree = ast.parse(block.code)
        if not block.needs:
            exec(compile(tree, f"line {block.line}", "exec"), names)
    elif block.language not in SHOWN:
        for command, expected in block.commands:
            if block.needs:
                plan_shell(command, folder)
            else:
                run_shell(command, expected, folder, *processes)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def techniques() -> Iterator[None]:
    """A page may add techniques of its own; they go with it."""
    with ExitStack() as stack:
        for axis in AXES.values():
            stack.enter_context(patch.dict(axis.variants))
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session", "techniques")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=named)
def test_every_block_of_a_page_runs(page, workspace, processes, parents_folder, monkeypatch):
    monkeypatch.chdir(workspace)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        try:
            run(block, workspace, names, processes, parents_folder)
        except BaseException as error:
            error.add_note(f"{named(page)}, line {block.line}")
            raise


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_block_is_passed_over(page):
    for block in blocks(page):
        assert block.needs in ("", *NEEDS), f"{named(page)}, line {block.line}: needs what?"
        known = ("bash", "console", "python", "yaml", "json", *SHOWN)
        assert block.language in known, (
            f"{named(page)}, line {block.line}: no test runs {block.language}"
        )
        assert block.language not in SHOWN or not list(calls(block.code)), (
            f"{named(page)}, line {block.line}"
        )


@pytest.mark.parametrize("page", LINKING, ids=named)
def test_links_lead_somewhere(page):
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_named_in_passing_are_as_the_verbs_take_them(page):
    for span in spans(page):
        for verb, arguments in calls(span.replace("... --", "orchestrator sweep CONFIG --")):
            assert verb in verbs(), span
            if arguments:
                parser_of(verb).parse_args(arguments)


def test_every_flag_named_in_passing_is_some_verbs():
    flags = {
        flag for verb in verbs() for flag in parser_of(verb).format_help().split() if "--" in flag
    }
    flags = {flag.strip("[],()") for flag in flags}
    for page in PAGES:
        for span in (span for span in spans(page) if span.startswith("--")):
            assert span.split()[0] in flags, f"{named(page)}: {span}"
