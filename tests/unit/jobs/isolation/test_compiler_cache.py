"""What remains of a library whose linker was killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from numpy._core import _multiarray_umath

from jobs.isolation import compiler_cache

LIBRARY = Path(_multiarray_umath.__file__).read_bytes()
SINCE = 1_000.0


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a library into a cache, as of a time."""
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
def test_incomplete_library_is_removed(write: Callable[..., Path], size: int) -> None:
    path = write("killed.so", LIBRARY[:size])
    assert compiler_cache.remove_incomplete(SINCE) == [path]
    assert not path.exists()


def test_complete_and_older_libraries_are_kept(write: Callable[..., Path]) -> None:
    complete = write("complete.so", LIBRARY)
    older = write("older.so", b"", SINCE - 5)
    source = write("source.cpp", b"")
    assert compiler_cache.remove_incomplete(SINCE) == []
    assert complete.exists()
    assert older.exists()
    assert source.exists()


def test_library_that_is_still_written_is_kept(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("other.so", b"")
    monkeypatch.setattr(
        compiler_cache.time, "sleep", lambda seconds: os.utime(path, (SINCE + 6, SINCE + 6))
    )
    assert compiler_cache.remove_incomplete(SINCE) == []
    assert path.exists()


def test_folder_is_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert str(compiler_cache.folder()) == default_cache_dir()

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert str(compiler_cache.folder()) == default_cache_dir()
