"""Locks that killed builds left behind are removed; those of builds that go on are not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jobs.isolation.build_ops import remove_abandoned_locks


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a build of an op keeps its lock."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folder = tmp_path / "py311_cpu" / "cpu_adam"
    folder.mkdir(parents=True)
    return folder / "lock"


def test_a_lock_older_than_any_build_is_removed(lock: Path) -> None:
    lock.touch()
    remove_abandoned_locks()
    assert lock.exists(), "it may be another node's"
    os.utime(lock, (0, 0))
    remove_abandoned_locks()
    assert not lock.exists()


def test_a_lock_of_a_killed_trial_is_removed(lock: Path) -> None:
    lock.touch()
    begun = lock.stat().st_mtime
    remove_abandoned_locks(begun_since=begun + 1)
    assert lock.exists()
    remove_abandoned_locks(begun_since=begun - 1)
    assert not lock.exists()


def test_a_lock_that_somebody_holds_stays(lock: Path) -> None:
    held = os.open(lock, os.O_CREAT | os.O_EXCL)
    os.utime(lock, (0, 0))
    remove_abandoned_locks(begun_since=time.time() - 60)
    assert lock.exists()
    os.close(held)
    remove_abandoned_locks()
    assert not lock.exists()
