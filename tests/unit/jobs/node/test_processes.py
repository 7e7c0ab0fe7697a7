"""A probe in a process of its own: its output, its error, and the time limit."""

import importlib.util
import os
import re
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from jobs.node.processes import keep_bytecode, probe


def test_probe_returns_what_is_printed():
    assert probe([sys.executable, "-c", "print('fit')"], 60.0) == "fit\n"


@pytest.mark.parametrize(
    ("command", "seconds", "error"),
    [
        ([sys.executable, "-c", "raise ValueError('dead')"], 60.0, "ValueError: dead"),
        ([sys.executable, "-c", "import os; os._exit(3)"], 60.0, "exit status 3"),
        (["sleep", "600"], 0.2, "it did not end within 0.2 s"),
    ],
)
def test_probe_that_fails_or_hangs_raises(command, seconds, error):
    with pytest.raises(RuntimeError, match=f"^{re.escape(error)}$"):
        probe(command, seconds)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's cache folder, in a container that keeps no bytecode, with a torch without any."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # Set first: only a variable that was set before is restored after the test.
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    torch = ModuleSpec("torch", None, origin="torch/__init__.py")
    torch.cached = str(tmp_path / "torch.pyc")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: torch)
    return tmp_path


def test_process_started_afterwards_keeps_bytecode_in_the_cache(cache):
    keep_bytecode()
    (cache / "own_module.py").write_text("x = 1\n")
    subprocess.run([sys.executable, "-c", "import own_module"], cwd=cache, check=True)
    kept = list((cache / "orchestrator" / "bytecode").rglob("own_module.*.pyc"))
    assert len(kept) == 1
    assert not (cache / "__pycache__").exists()
    assert not sys.dont_write_bytecode


def test_packages_with_bytecode_are_left_alone(cache):
    (cache / "torch.pyc").touch()
    keep_bytecode()
    assert "PYTHONPYCACHEPREFIX" not in os.environ
    assert sys.dont_write_bytecode


def test_folder_that_the_user_chose_is_kept(cache, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", "chosen")
    keep_bytecode()
    assert sys.pycache_prefix == "chosen"
    assert os.environ["PYTHONDONTWRITEBYTECODE"] == "1"


@pytest.mark.parametrize("home", ["relative", "/proc/self", "/dev/null"])
def test_unusable_cache_is_not_used(cache, monkeypatch, home):
    monkeypatch.chdir(cache)
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    keep_bytecode()
    assert sys.pycache_prefix is None
    assert sys.dont_write_bytecode
    assert not (cache / "relative").exists()
