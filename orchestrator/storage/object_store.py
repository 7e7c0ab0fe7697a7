"""Runs in object stores: the files at a URI listed, read and written, through pyarrow's filesystems or fsspec's."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from orchestrator.storage.location import Uri
from orchestrator.storage.run_metadata import RECORDS, RUN

_AT_ONCE = 16
_NATIVE = ("s3", "gs", "gcs")
"""Schemes that pyarrow itself speaks; every other is fsspec's."""


class StoreError(OSError):
    """The store refuses, cannot be reached or lacks its package: one sentence that begins with the URI."""


class Store:
    """A run's files at a URI; names are relative to it, with slashes. Every method raises StoreError."""

    def __init__(self, uri: Uri) -> None:
        self.uri = uri
        with self._answering():
            self._files, self._root = _filesystem(uri)

    def names(self) -> set[str]:
        """The files that are there; none where there is no such folder yet."""
        from pyarrow.fs import FileSelector, FileType

        with self._answering():
            found = self._files.get_file_info(
                FileSelector(self._root, recursive=True, allow_not_found=True)
            )
        return {
            info.path.removeprefix(f"{self._root}/")
            for info in found
            if info.type == FileType.File and info.size
        }

    def prepare(self) -> None:
        """Make sure that it can be written, before hours are spent on what could not be kept."""
        with self._answering():
            self._write(f"{RECORDS}/.keep", b"")

    def fetch(self, names: Iterable[str], folder: Path) -> None:
        """Copy files into a folder of this machine."""

        def fetch(name: str) -> None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._files.open_input_stream(self._at(name)) as file:
                path.write_bytes(file.read())

        self._each(fetch, names)

    def update(self, folder: Path, changed: Collection[str], gone: Collection[str]) -> None:
        """Copy the folder's ``changed`` files here, and empty those that are ``gone``: what is empty is not there."""
        self._each(lambda name: self._write(name, (folder / name).read_bytes()), changed)
        # Not removed: with the last file pyarrow makes its folder an object, which not every S3 server takes.
        self._each(lambda name: self._write(name, b""), gone)

    def _write(self, name: str, content: bytes) -> None:
        if self.uri.scheme not in _NATIVE:  # a bucket has no folders to make
            self._files.create_dir(self._at(name).rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(self._at(name)) as file:
            file.write(content)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _each(self, act: Any, names: Iterable[str]) -> None:
        with self._answering(), ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(act, names))

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """What goes wrong becomes a sentence; nothing of the request, which is signed, is kept."""
        try:
            yield
        except (OSError, ImportError, ValueError, RuntimeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise StoreError(f"{self.uri}: {reason[:400]}") from None


def open_store(uri: Uri) -> Store:
    """What a URI names. Raises StoreError: its package is missing, or its address makes no sense."""
    if uri.scheme == "hf":
        from orchestrator.storage.hub import Hub

        return Hub(uri)
    return Store(uri)


def needed(names: Collection[str]) -> set[str]:
    """What of a run has to be read: what was run and its records; the tables where only they were kept."""
    records = {name for name in names if is_record(name)}
    tables = {name for name in names if name.endswith(".parquet") and "/" not in name}
    return (records or tables) | {RUN}.intersection(names)


def is_record(name: str) -> bool:
    """Whether a file's name is that of a trial's record; those of a run in a folder below are not this run's."""
    return name.rpartition("/")[0] == RECORDS and name.endswith(".json")


def fetched(uri: Uri) -> Path:
    """A folder with what is to be read of a run, kept until the process ends.

    Raises StoreError, and FileNotFoundError where there is no run.
    """
    store = open_store(uri)
    wanted = needed(store.names())
    if not wanted - {RUN}:
        raise FileNotFoundError(str(uri))
    folder = Path(tempfile.mkdtemp(dir=_shelf().name), uri.name)
    store.fetch(wanted, folder)
    return folder


@functools.cache
def _shelf() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="orchestrator-")


def _filesystem(uri: Uri) -> tuple[Any, str]:
    """The filesystem and the path in it. Raises ImportError or ValueError where the scheme is not understood."""
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    if uri.scheme in _NATIVE:
        # Servers that are S3 by their interface only do not know the checksums that Amazon's own has come to expect.
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        # Without credentials the library would ask for them for a quarter of an hour.
        patience = "?retry_limit_seconds=60" if uri.scheme in ("gs", "gcs") else ""
        files, path = FileSystem.from_uri(f"{uri}{patience}")
        return files, path.rstrip("/")
    import fsspec

    files, path = fsspec.core.url_to_fs(str(uri))
    return PyFileSystem(FSSpecHandler(files)), path.strip(
        "/"
    ) if uri.scheme == "hf" else path.rstrip("/")
