"""Temporary folders: those of killed owners are removed, those in use stay."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jobs.isolation.scratch import own_folder

OWNER = """
import sys
from jobs.isolation.scratch import own_folder
with own_folder('slot-') as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made, here and in processes started here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_own_folder_removes_those_of_killed_owners_only(temporary: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        theirs = Path(owner.stdout.readline().strip())
        (theirs / "states.bin").write_bytes(bytes(1000))
        (temporary / "slot-file").touch()
        with own_folder("slot-") as ours:
            assert {theirs, ours} <= set(temporary.iterdir()), "both are in use"
        owner.kill()
        owner.wait()
    with own_folder("slot-") as ours:
        assert set(temporary.iterdir()) == {ours, temporary / "slot-file"}
    assert set(temporary.iterdir()) == {temporary / "slot-file"}
