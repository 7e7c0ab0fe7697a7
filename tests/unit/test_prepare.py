"""Locks that killed builds left behind are removed; those of builds that go on are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.prepare import remove_abandoned_locks


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a build of an op keeps its lock."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folder = tmp_path / "py311_cpu" / "cpu_adam"
    folder.mkdir(parents=True)
    return folder / "lock"


def test_a_lock_that_nobody_holds_is_removed(lock: Path) -> None:
    lock.touch()
    remove_abandoned_locks()
    assert not lock.exists()


def test_a_lock_that_somebody_holds_stays(lock: Path) -> None:
    held = os.open(lock, os.O_CREAT | os.O_EXCL)
    remove_abandoned_locks()
    assert lock.exists()
    os.close(held)
    remove_abandoned_locks()
    assert not lock.exists()
