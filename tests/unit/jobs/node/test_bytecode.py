"""Bytecode is kept in a cache where Python keeps none, and nowhere else."""

import importlib.util
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from jobs.node.processes import keep_bytecode


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
