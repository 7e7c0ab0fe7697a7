"""The files of a dataset on disk: none of the kernel's, no pipes, no devices.

The content of such a file is no data, and may be secret; a pipe blocks its reader.
"""

import fnmatch
import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path


def problem_of_path(path: str) -> str:
    """Why a file that a path or pattern names, at any depth, is no data; empty if none is such."""
    if "://" in path or "::" in path:
        return f"{path} is not a path on this machine"
    for file in _named_files(path):
        if problem := problem_of_file(file):
            return problem
    return ""


def problem_of_file(path: Path) -> str:
    """Why a file or folder is no data; empty if it is, or if it does not exist."""
    resolved = Path(os.path.realpath(path))
    is_of_the_kernel = any(map(resolved.is_relative_to, ("/proc", "/sys", "/dev")))
    # A disk in memory is a usual place for data, though it lies in /dev.
    if is_of_the_kernel and not resolved.is_relative_to("/dev/shm"):
        return f"{path} is no data file: it belongs to the system"
    try:
        mode = resolved.stat().st_mode
    except (OSError, ValueError):
        return ""
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return f"{path} is no file but a pipe or a device"
    return ""


def _named_files(path: str) -> Iterator[Path]:
    """What a path or pattern names, with what lies in named folders and could be no plain file."""
    if "**" in path:
        # Python's glob would follow links to folders, some of which lead back to the root.
        odd = _odd_files(_fixed_part(path))
        yield from (file for file in odd if fnmatch.fnmatch(file.name, Path(path).name))
        return
    named = [path]
    if glob.has_magic(path):
        named += glob.glob(path, include_hidden=True)
    for file in map(Path, named):
        yield file
        yield from _odd_files(file)


def _fixed_part(pattern: str) -> Path:
    path = Path(pattern)
    while glob.has_magic(str(path)):
        path = path.parent
    return path


def _odd_files(folder: Path) -> Iterator[Path]:
    """The links, pipes and devices in a folder, at any depth; follows no link, like datasets."""
    waiting = [folder]
    while waiting:
        for entry in _entries(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            elif not entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder; nothing if it is no folder, or belongs to the system."""
    if problem_of_file(folder):
        return []
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []  # reading the data fails, too, and gives the reason
