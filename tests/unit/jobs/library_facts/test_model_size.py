"""A model that cannot be built is a mistake; the process that counts ends with its command."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobs.library_facts.model_size import size_of
from jobs.spec import ModelSpec

ASK = """
from orchestrator.planning.library_facts import answer_of
config = {"num_hidden_layers": 10**8}
model = {"task": "sequence-classification", "architecture": "bert", "config": config}
answer_of({"model": model}, "counting", print)
"""
"""Builds a model of so many layers that it takes longer than any test."""


@pytest.fixture
def counter() -> Iterator[psutil.Process]:
    """The process that counts, once it has loaded torch. Its parent has asked it."""
    with subprocess.Popen([sys.executable, "-c", ASK], cwd=Path(__file__).parents[4]) as asker:
        give_up_at = time.monotonic() + 150.0
        while not (children := psutil.Process(asker.pid).children()) or not _has_torch(children[0]):
            assert asker.poll() is None
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
        yield children[0]
        asker.kill()
        psutil.wait_procs(children, timeout=1.0, callback=None)
        for child in children:
            if child.is_running():
                child.kill()


def _has_torch(process: psutil.Process) -> bool:
    try:
        return "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return False


def test_counter_of_a_killed_command_ends(counter: psutil.Process) -> None:
    counter.parent().kill()
    _, alive = psutil.wait_procs([counter], timeout=30.0)
    assert alive == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"hidden_size": 100}, "not a multiple of the number of attention heads"),
        ({"is_decoder": "maybe"}, "'is_decoder' expected bool"),
    ],
)
def test_value_that_the_model_refuses_is_a_mistake(wrong: dict[str, object], said: str) -> None:
    model = ModelSpec(task="sequence-classification", architecture="bert", config=wrong)
    assert said in size_of(model)["mistake"]
