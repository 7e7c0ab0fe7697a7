"""Runs at a URI: downloaded before a run, uploaded after it, through the store's own client."""

import contextlib
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.storage.layout import RECORDS, RUN
from orchestrator.storage.location import Uri
from orchestrator.storage.record_reader import read_record

_BUCKETS = ("s3", "gs", "gcs")
"""Schemes that pyarrow supports itself. fsspec serves all others."""
_GCS_RETRY_LIMIT = "?retry_limit_seconds=60"
"""Without a limit, and without credentials, pyarrow asks Google for a quarter of an hour."""
_LOCAL_FILES = ("lock", ".*", "*/.*")
"""Patterns of files that mean nothing on another machine."""


class RemoteError(OSError):
    """A store refuses, cannot be reached or lacks its package: one sentence, the URI first."""


def check_writable(uri: Uri) -> None:
    """Write an empty marker at the URI; on the Hub, make the repository. Raises RemoteError."""
    with _errors_named(uri):
        if uri.scheme == "hf":
            from huggingface_hub import HfApi

            # The Hub takes no empty file as a test. Creating the repository also tests the access.
            name, _ = _repository(uri)
            HfApi().create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        else:
            _at(uri).write_empty(f"{RECORDS}/.keep")


def download(uri: Uri, folder: Path) -> list[str]:
    """Copy a run's records and run.json, or its tables if only those were kept, to a folder, where
    a record is replaced only by one that started later. Returns the names at the URI, empty if
    there is no run. Raises RemoteError."""
    with _errors_named(uri), tempfile.TemporaryDirectory() as scratch:
        remote = _at(uri)
        names = sorted(_needed(remote.names()))
        # First download all files, then replace older ones: an incomplete download changes nothing.
        _copy(names, remote, _on_disk(Path(scratch)))
        for name in names:
            _keep_later(Path(scratch, name), folder / name)
    return names


def upload(folder: Path, uri: Uri, *, card: str = "") -> None:
    """Copy every file of a run but the lock to the URI, and remove records that the run dropped.
    ``card`` is the text of the dataset's README.md on the Hub. Raises RemoteError."""
    with _errors_named(uri):
        if uri.scheme == "hf":
            _commit(folder, uri, card)
            return
        local = _on_disk(folder)
        remote = _at(uri)
        names = {name for name in local.names() if not any(map(Path(name).match, _LOCAL_FILES))}
        _copy(names, local, remote)
        # Records that are only at the URI were dropped by this run.
        for name in _records(remote.names()) - names:
            # With the last file of a folder pyarrow writes a folder object, which not every S3
            # server takes. An empty file counts as absent instead.
            remote.write_empty(name)


def fetched(uri: Uri) -> Path:
    """The run at a URI, until the process ends. Raises RemoteError, or FileNotFoundError without
    one."""
    folder = Path(tempfile.mkdtemp(dir=_downloads().name), uri.name)
    if not set(download(uri, folder)) - {RUN}:
        raise FileNotFoundError(str(uri))
    return folder


@functools.cache
def _downloads() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="orchestrator-")


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder in one of pyarrow's filesystems. File names are relative to it, with slashes."""

    files: Any
    root: str
    is_bucket: bool = False

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def names(self) -> set[str]:
        """The files that are not empty; none if there is no such folder."""
        from pyarrow.fs import FileSelector, FileType

        found = self.files.get_file_info(
            FileSelector(self.root, recursive=True, allow_not_found=True)
        )
        files = (info.path for info in found if info.type == FileType.File and info.size)
        return {path.removeprefix(f"{self.root}/") for path in files}

    def write_empty(self, name: str) -> None:
        self.make_parent(name)
        with self.files.open_output_stream(self.path(name)):
            pass

    def make_parent(self, name: str) -> None:
        if not self.is_bucket:  # a bucket has no folders
            self.files.create_dir(self.path(name).rpartition("/")[0], recursive=True)


def _copy(names: Iterable[str], source: _Folder, target: _Folder) -> None:
    from pyarrow.fs import copy_files

    def copy_file(name: str) -> None:
        target.make_parent(name)
        copy_files(
            source.path(name),
            target.path(name),
            source_filesystem=source.files,
            destination_filesystem=target.files,
        )

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(copy_file, names))  # the list raises what a copy raised


def _on_disk(folder: Path) -> _Folder:
    from pyarrow.fs import LocalFileSystem

    return _Folder(LocalFileSystem(), folder.absolute().as_posix())


def _at(uri: Uri) -> _Folder:
    """The folder at a URI. Raises ImportError or ValueError on an unknown scheme."""
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    if uri.scheme in _BUCKETS:
        # Other S3 servers than Amazon's do not know the checksums that Amazon's now expects.
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        options = "" if uri.scheme == "s3" else _GCS_RETRY_LIMIT
        files, path = FileSystem.from_uri(f"{uri}{options}")
        return _Folder(files, path.rstrip("/"), is_bucket=True)
    import fsspec

    # A cached filesystem would list what lay there before the last upload.
    files, path = fsspec.core.url_to_fs(str(uri), skip_instance_cache=True)
    # The name of a repository on the Hub begins without a slash.
    root = path.strip("/") if uri.scheme == "hf" else path.rstrip("/")
    return _Folder(PyFileSystem(FSSpecHandler(files)), root)


def _records(names: Iterable[str]) -> set[str]:
    """The records among files. Records of a run in a folder below are not this run's."""
    return {name for name in names if re.fullmatch(rf"{RECORDS}/[^/]*\.json", name)}


def _needed(names: set[str]) -> set[str]:
    """The files that say all of a run: its records, or the tables if only they were kept."""
    tables = {name for name in names if name.endswith(".parquet") and "/" not in name}
    return (_records(names) or tables) | names.intersection({RUN})


def _keep_later(downloaded: Path, path: Path) -> None:
    """Move a file to its place, unless a record that started no earlier lies there."""
    # The later measurement of a trial is the one to keep; equal ones are one and the same.
    if not path.exists() or _started_at(downloaded) > _started_at(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(downloaded, path)


def _started_at(path: Path) -> float:
    """When a record's trial started, in Unix time; -1 for any other file."""
    record = read_record(path)
    return -1.0 if record is None else record.started_at


def _commit(folder: Path, uri: Uri, card: str) -> None:
    from huggingface_hub import HfApi

    if card:
        (folder / "README.md").write_text(card)
    name, path = _repository(uri)
    HfApi().upload_folder(
        repo_id=name,
        repo_type="dataset",
        folder_path=folder,
        path_in_repo=path,
        ignore_patterns=list(_LOCAL_FILES),
        delete_patterns=f"{RECORDS}/*.json",
        commit_message=f"Run {uri.name}",
    )


def _repository(uri: Uri) -> tuple[str, str]:
    _, user, name, *folder = uri.path.split("/")
    return f"{user}/{name}", "/".join(folder)


@contextlib.contextmanager
def _errors_named(uri: Uri) -> Iterator[None]:
    """Turn any error into one sentence. The request is signed, so nothing else of it is kept."""
    try:
        yield
    except (OSError, ImportError, ValueError, RuntimeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # A store's refusal can quote a whole page of HTML.
        raise RemoteError(f"{uri}: {lines[0][:400]}") from None
