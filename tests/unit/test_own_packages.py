"""A package ``jobs`` of the user's own beside the command breaks nothing; the wheel is complete.

``test_killed_driver_is_resumed`` in tests/integration/test_sweep.py measures beside such a package.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jobs import self_process
from tests.support.another_jobs import write_another_jobs
from tests.support.commands import ROOT, python, ran

SHIPPED = sorted(path.name for path in (ROOT / "configs").iterdir())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working folder with a package ``jobs`` that must not be imported."""
    return write_another_jobs(tmp_path)


def run_in(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    return ran(*command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("module", ["orchestrator", "orchestrator.sweep"])
def test_verb_beside_a_package_jobs_runs(here, module):
    done = run_in(here, [sys.executable, "-m", module, "--help"])
    assert (done.returncode, done.stderr) == (0, "")


def test_process_of_ours_beside_a_package_jobs_is_ours(here):
    done = run_in(here, self_process.command("jobs", "--help"))
    assert done.returncode == 0, done.stderr
    assert "prints its record" in " ".join(done.stdout.split())  # narrow terminals wrap it


def test_process_of_ours_keeps_its_arguments_and_the_working_folder_last(here):
    (here / "mine.py").write_text("import sys; print(sys.argv, sys.path[-1])\n")
    done = run_in(here, self_process.command("mine", "--flag"))
    assert done.stdout == f"{[str(here / 'mine.py'), '--flag']} {here}\n"


@pytest.mark.slow
def test_wheel_holds_types_configurations_and_every_package(tmp_path):
    listing = ["git", "ls-files", "-co", "--exclude-standard"]
    files = ran(*listing, "jobs", "orchestrator", "configs", check=True).stdout.split()
    source = tmp_path / "source"
    for name in [*files, "pyproject.toml", "setup.py", "README.md", "LICENSE"]:
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = "from setuptools import build_meta as b; print(b.build_wheel('..'))"
    built = python("-c", build, cwd=source, check=True)
    wheel = tmp_path / built.stdout.split()[-1]
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wheel.name.startswith("training_frontier-")
    assert {"jobs/py.typed", "orchestrator/py.typed"} <= names
    assert {f"orchestrator/configs/{name}" for name in SHIPPED} <= names
    packaged = {name for name in files if (ROOT / name).exists() and not name.startswith("configs")}
    # A linter's settings are hidden files, which a wheel leaves out.
    assert {name for name in packaged if not Path(name).name.startswith(".")} <= names
