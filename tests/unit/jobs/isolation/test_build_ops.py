"""Locks that killed builds left behind are removed; those of running builds are not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jobs.isolation.build_ops import remove_abandoned_locks


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the build of an op keeps its lock."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folder = tmp_path / "py311_cpu" / "cpu_adam"
    folder.mkdir(parents=True)
    return folder / "lock"


def test_remove_abandoned_locks_takes_only_old_ones(lock: Path) -> None:
    lock.touch()
    remove_abandoned_locks()
    assert lock.exists(), "another node may be building"
    os.utime(lock, (0, 0))
    remove_abandoned_locks()
    assert not lock.exists()


def test_remove_abandoned_locks_takes_those_of_a_killed_trial(lock: Path) -> None:
    lock.touch()
    begun = lock.stat().st_mtime
    remove_abandoned_locks(begun_since=begun + 1)
    assert lock.exists()
    remove_abandoned_locks(begun_since=begun - 1)
    assert not lock.exists()


def test_remove_abandoned_locks_leaves_an_open_one(lock: Path) -> None:
    descriptor = os.open(lock, os.O_CREAT | os.O_EXCL)
    os.utime(lock, (0, 0))
    remove_abandoned_locks(begun_since=time.time() - 60)
    assert lock.exists()
    os.close(descriptor)
    remove_abandoned_locks()
    assert not lock.exists()
