"""What killed builds, linkers and owners leave behind is removed; what is in use stays."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from numpy._core import _multiarray_umath

from jobs.isolation import compiler_cache, scratch
from jobs.isolation.build_ops import remove_abandoned_locks
from jobs.isolation.scratch import own_folder

LIBRARY = Path(_multiarray_umath.__file__).read_bytes()
SINCE = 1_000.0
Write = Callable[..., Path]


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock of the build of a DeepSpeed op."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folder = tmp_path / "py311_cpu" / "cpu_adam"
    folder.mkdir(parents=True)
    lock = folder / "lock"
    lock.touch()
    return lock


def test_remove_abandoned_locks_takes_old_ones_and_those_of_a_killed_trial(lock):
    made_at = lock.stat().st_mtime
    remove_abandoned_locks()
    remove_abandoned_locks(begun_since=made_at + 1)
    assert lock.exists(), "another node may be building"
    remove_abandoned_locks(begun_since=made_at - 1)
    assert not lock.exists()
    lock.touch()
    os.utime(lock, (0, 0))
    remove_abandoned_locks()
    assert not lock.exists()


def test_remove_abandoned_locks_leaves_an_open_one(lock):
    os.utime(lock, (0, 0))
    with lock.open():
        remove_abandoned_locks(begun_since=time.time() - 60)
        assert lock.exists()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a library into TorchInductor's cache, as of a time."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiler_cache.time, "sleep", lambda seconds: None)

    def in_cache(name: str, content: bytes, time: float = SINCE + 5) -> Path:
        path = tmp_path / "ab" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (time, time))
        return path

    return in_cache


@pytest.mark.parametrize("size", [0, 40, 4_096, len(LIBRARY) // 2])
def test_incomplete_library_alone_is_removed(write, size):
    kept = {
        write("complete.so", LIBRARY),
        write("older.so", b"", SINCE - 5),
        write("source.cpp", b""),
    }
    path = write("killed.so", LIBRARY[:size])
    assert compiler_cache.remove_incomplete(SINCE) == [path]
    assert {*path.parent.iterdir()} == kept


def test_library_still_being_written_is_kept(write, monkeypatch):
    path = write("other.so", b"")
    monkeypatch.setattr(
        compiler_cache.time, "sleep", lambda seconds: os.utime(path, (SINCE + 6, SINCE + 6))
    )
    assert compiler_cache.remove_incomplete(SINCE) == []
    assert path.exists()


def test_folder_is_that_of_torch(monkeypatch):
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert str(compiler_cache.folder()) == default_cache_dir()

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert str(compiler_cache.folder()) == default_cache_dir()


@pytest.mark.parametrize("when", ["before the lock", "after the lock"])
def test_own_folder_leaves_nothing_however_early_its_owner_is_killed(tmp_path, monkeypatch, when):
    lock = scratch.fcntl.flock

    def killed(*arguments: int) -> None:
        if when == "after the lock":
            lock(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(scratch.fcntl, "flock", killed)
    with pytest.raises(KeyboardInterrupt), own_folder("slot-", str(tmp_path)):
        pass
    monkeypatch.undo()
    scratch.remove_abandoned("slot-", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_own_folder_that_another_process_removes_before_its_lock_is_made_again(
    tmp_path, monkeypatch
):
    open_folder = os.open
    gone = []

    def removed_first(path: Path, flags: int) -> int:
        if not gone:
            gone.append(path)
            path.rmdir()
        return open_folder(path, flags)

    monkeypatch.setattr(scratch.os, "open", removed_first)
    with own_folder("slot-", str(tmp_path)) as folder:
        assert [folder] == list(tmp_path.iterdir()) != gone


OWNER = """
import sys
from jobs.isolation.scratch import own_folder
with own_folder('slot-') as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_own_folder_removes_those_of_killed_owners_only(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        theirs = Path(owner.stdout.readline().strip())
        (theirs / "states.bin").write_bytes(bytes(1000))
        (tmp_path / "slot-file").touch()
        with own_folder("slot-") as ours:
            assert {theirs, ours} <= set(tmp_path.iterdir()), "both are in use"
        owner.kill()
    with own_folder("slot-") as ours:
        assert set(tmp_path.iterdir()) == {ours, tmp_path / "slot-file"}
    assert set(tmp_path.iterdir()) == {tmp_path / "slot-file"}
