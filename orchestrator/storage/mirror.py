"""A run folder's copy at a URI: brought before the run, kept up while it goes on, complete when it ends."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.storage.location import Uri
from orchestrator.storage.object_store import Store, StoreError, is_record, needed, open_store
from orchestrator.storage.record_reader import read_record
from orchestrator.storage.run_metadata import RUN, UnreadableRunError, read_run

EVERY_SECONDS = 60.0
_PAGES_EVERY = 5
"""Pages are rendered anew at every fifth copy only: it takes a second of a core that a trial may want."""
_OWN = ("lock",)
"""What means nothing elsewhere."""

Signature = tuple[int, int, int]


class Mirror:
    """What the URI has of a folder. Files are replaced by renaming, so that inode, size and time tell a new one."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._alike: dict[str, Signature] = {}
        self._there: set[str] = set()

    def bring(self) -> None:
        """Copy records that are newer at the URI, or only there, into the folder. Raises StoreError."""
        self._there = self._store.names()
        with tempfile.TemporaryDirectory() as shelf:
            self._store.fetch(wanted := needed(self._there), Path(shelf))
            for name in wanted:
                theirs, ours = Path(shelf, name), self._folder / name
                if _started_at(theirs) > _started_at(ours):
                    ours.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(theirs, ours)
                if ours.read_bytes() == theirs.read_bytes():
                    self._alike[name] = _signature(ours)

    def send(self) -> None:
        """Copy what is new in the folder to the URI; a record that is gone here is removed there. Raises StoreError."""
        paths = (
            path
            for path in self._folder.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        )
        names = {
            path.relative_to(self._folder).as_posix(): path
            for path in paths
            if path.name not in _OWN
        }
        here = {name: _signature(path) for name, path in names.items()}
        changed = {name for name, signature in here.items() if self._alike.get(name) != signature}
        gone = {name for name in self._there if is_record(name) and name not in here}
        self._store.update(self._folder, changed, gone)
        self._alike = here
        self._there = (self._there - gone) | changed


@contextlib.contextmanager
def published(uri: Uri, folder: Path, render: Callable[[Path], object] | None) -> Iterator[None]:
    """The folder is first brought up to date, and at last the URI; in between it is copied every minute.

    ``render`` writes the folder's tables and pages anew. Raises StoreError where the URI cannot be read or written
    at the beginning or at the end; in between it says so and tries again.
    """
    store = open_store(uri)
    store.prepare()
    mirror, ended = Mirror(folder, store), threading.Event()
    mirror.bring()
    copying = threading.Thread(target=_copy, args=(mirror, uri, folder, render, ended), daemon=True)
    copying.start()
    try:
        yield
    finally:
        ended.set()
        copying.join()
        try:
            mirror.send()
        except StoreError as error:
            raise StoreError(
                f"{error}; the run is whole in {folder}, and --resume publishes it"
            ) from None
        if (folder / RUN).exists():
            _say(f"published to {uri}")


def _copy(
    mirror: Mirror,
    uri: Uri,
    folder: Path,
    render: Callable[[Path], object] | None,
    ended: threading.Event,
) -> None:
    times, said = 0, ""
    while not ended.wait(EVERY_SECONDS):
        times += 1
        try:
            if render is not None and times % _PAGES_EVERY == 0:
                with contextlib.suppress(FileNotFoundError):  # nothing to render yet
                    render(folder)
            mirror.send()
        except (
            Exception
        ) as error:  # a store or a page that fails costs a copy, not the run: the next is tried
            if said != str(error):
                _say(f"-- {error}; the run goes on in {folder}, and publishing it is tried again")
            said = str(error)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _started_at(path: Path) -> float:
    """When a record's trial or a run began; -1 where it never did, below that where there is no such file."""
    if not path.exists():
        return -2.0
    if path.name == RUN:
        with contextlib.suppress(UnreadableRunError):
            return read_run(path.parent).started_at
    record = read_record(path)
    return record.started_at if record is not None and record.started_at else -1.0


def _signature(path: Path) -> Signature:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
