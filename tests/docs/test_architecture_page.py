"""The architecture page lists every folder of the source, and each folder's index its modules."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
ROOTS = ("orchestrator", "jobs")
_LISTED = re.compile(r"`([\w/]+(?:/|\.py))`")


def listed(root: str) -> set[str]:
    """The files and folders in the table of one source folder; a folder ends with a slash."""
    paths: set[str] = set()
    is_inside = False
    for line in PAGE.splitlines():
        if line.startswith("|") and f"`{root}/` |" in line:
            is_inside = True
        elif not line.startswith("|"):
            is_inside = False
        elif is_inside:
            # The last cell says what the folder is for; the cells before it name it.
            named, _, _ = line.rstrip("| ").rpartition("|")
            paths.update(_LISTED.findall(named))
    return paths


def packages(root: str) -> Iterator[str]:
    """Every package below a source folder, relative to it, as the page writes it."""
    folder = ROOT / root
    for initial in folder.glob("*/**/__init__.py"):
        package: Path = initial.parent.relative_to(folder)
        yield f"{package}/"


@pytest.mark.parametrize("root", ROOTS)
def test_every_package_is_listed(root):
    assert sorted(set(packages(root)) - listed(root)) == []


@pytest.mark.parametrize("root", ROOTS)
def test_every_listed_path_exists(root):
    paths = listed(root)
    assert paths
    assert sorted(path for path in paths if not (ROOT / root / path).exists()) == []


@pytest.mark.parametrize("root", ROOTS)
def test_every_module_is_named_in_the_index_of_its_package(root):
    unnamed = []
    for initial in (ROOT / root).rglob("__init__.py"):
        index = set(re.findall(r"\w+", initial.read_text(encoding="utf-8")))
        modules = {path.stem for path in initial.parent.glob("*.py")} - {"__main__"}
        unnamed += [f"{initial.parent.name}/{own}" for own in modules - {"__init__"} - index]
    assert sorted(unnamed) == []
