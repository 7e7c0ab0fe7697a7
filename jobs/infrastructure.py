"""Failures of the machine, which say nothing about a trial: a resumed run repeats the trial."""

import contextlib
import math
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from jobs.record import Outcome, Provenance, TrialRecord
from jobs.spec import TrialSpec

SLOT_UNRESPONSIVE = "slot_unresponsive"
"""Rule: the slot's parent process no longer answered."""
NOT_STARTED = "process_not_started"
"""Rule: the trial's processes ended before any of them had begun the trial."""
DISK_FULL = "disk_full"
"""Rule: a disk had no room, or no quota left, for a file that the trial or its slot needed."""
RULES = frozenset({SLOT_UNRESPONSIVE, NOT_STARTED, DISK_FULL})
"""Rules of skipped records whose trials were given to a slot. A resumed run repeats them."""

_FULL_TEXT = re.compile(
    r"No space left on device|Disk quota exceeded|\(os error (28|122)\)|\[Errno (28|122)\]"
)
"""How C libraries, Rust libraries (by ENOSPC, EDQUOT) and Python report a full disk."""


def unmeasured(
    spec: TrialSpec, rule: str, reason: str, *, phase: str = "", **known: Any
) -> TrialRecord:
    """The record of a trial that the machine failed; ``known`` are further fields of it."""
    return TrialRecord(
        spec=spec,
        outcome=Outcome.SKIPPED,
        rule=rule,
        reason=reason,
        phase=phase,
        provenance=Provenance(started_at=time.time()),
        **known,
    )


def says_disk_full(text: str) -> bool:
    """Whether a text, such as the end of a log, reports a disk without room or quota."""
    return _FULL_TEXT.search(text) is not None


def fullest_disk_in_words() -> str:
    """Of the disks of temporary files, data-loader workers and caches the one with least room."""
    caches = os.environ.get("HF_HOME") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folders = (tempfile.gettempdir(), "/dev/shm", os.path.expanduser(caches))
    return disk_in_words(Path(min(filter(os.path.isdir, folders), key=_free_bytes, default="/")))


def _free_bytes(folder: str) -> float:
    """Bytes that can still be written; 0 if no inode is left for a new file."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return math.inf  # not known to be full
    return 0 if status.f_files and not status.f_favail else status.f_bavail * status.f_frsize


def disk_in_words(path: Path) -> str:
    """The disk of a path and its free room: ``/tmp (tmpfs) has 0 B free and 12 inodes``."""
    folder = next(each for each in (path, *path.parents, Path("/")) if os.path.exists(each))
    try:
        status = os.statvfs(folder)
    except OSError as error:
        return f"{folder} cannot be examined ({error.strerror})"
    mount_point, file_system = mount_of(folder)
    # f_bavail leaves out what is reserved for root; f_frsize is the unit that it counts in.
    free_bytes = status.f_bavail * status.f_frsize
    words = f"{mount_point} ({file_system}) has {_size(free_bytes)} free"
    if status.f_files:  # some file systems (Btrfs) count no inodes
        words += f" and {status.f_favail} inodes"
    if status.f_flag & os.ST_RDONLY:
        words += ", and is read-only"
    return words


def mount_of(folder: Path) -> tuple[str, str]:
    """Mount point and file system of a folder; the folder itself if /proc does not say."""
    found = str(folder), "unknown file system"
    longest = 0
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, kind, *_ = line.split(" ")
            point = point.replace("\\040", " ")  # proc(5): spaces are written in octal
            # Mount points nest, and a later mount hides an earlier one: the last longest counts.
            if folder.resolve().is_relative_to(point) and len(point) >= longest:
                found, longest = (point, kind), len(point)
    return found


def _size(size: float) -> str:
    """Bytes for people, in binary units: ``12.0 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.{0 if unit == 'B' else 1}f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
