"""A package ``jobs`` of the user's own beside the command breaks nothing; the wheel is complete."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jobs import own_process

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path.name for path in (ROOT / "configs").iterdir())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working folder with a package ``jobs`` that must not be imported."""
    (tmp_path / "jobs").mkdir()
    for name in ("__init__", "__main__"):
        (tmp_path / "jobs" / f"{name}.py").write_text("raise SystemExit('the wrong jobs')\n")
    return tmp_path


def run_in(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["orchestrator", "orchestrator.sweep"])
def test_verb_beside_a_package_jobs_runs(here: Path, module: str) -> None:
    ran = run_in(here, [sys.executable, "-m", module, "--help"])
    assert (ran.returncode, ran.stderr) == (0, "")


def test_process_of_ours_beside_a_package_jobs_is_ours(here: Path) -> None:
    ran = run_in(here, own_process.command("jobs", "--help"))
    assert ran.returncode == 0, ran.stderr
    assert "prints its record" in ran.stdout


def test_process_of_ours_keeps_its_arguments_and_the_working_folder_last(here: Path) -> None:
    (here / "mine.py").write_text("import sys; print(sys.argv, sys.path[-1])\n")
    ran = run_in(here, own_process.command("mine", "--flag"))
    assert ran.stdout == f"{[str(here / 'mine.py'), '--flag']} {here}\n"


def test_orchestrator_after_another_package_jobs_says_so(here: Path) -> None:
    (here / "jobs" / "__init__.py").write_text("")
    ran = run_in(here, [sys.executable, "-c", "import jobs, orchestrator"])
    assert ran.returncode == 1
    assert "another package jobs is imported already" in ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sweep_beside_a_package_jobs_measures(here: Path) -> None:
    (here / "mini.yaml").write_text(
        "model: {task: sequence-classification, architecture: bert, config: {hidden_size: 32, "
        "num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 64, vocab_size: 128, "
        "max_position_embeddings: 16}}\n"
        "data: {synthetic: {sequence_length: 8, samples: 8}}\n"
        "axes: {micro_batch: [2]}\n"
        "measure: {warmup_steps: 1, steps: 2}\n"
    )
    ran = run_in(here, [sys.executable, "-m", "orchestrator.sweep", "mini.yaml", "--json"])
    assert ran.returncode == 0, ran.stderr
    assert (here / "runs" / "mini" / "trials.parquet").exists()


@pytest.mark.slow
def test_wheel_holds_types_configurations_and_every_package(tmp_path: Path) -> None:
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "jobs", "orchestrator", "configs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    source = tmp_path / "source"
    for name in [*files, "pyproject.toml", "setup.py", "README.md", "LICENSE"]:
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = "from setuptools import build_meta as b; print(b.build_wheel('..'))"
    ran = subprocess.run(
        [sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=True
    )
    wheel = tmp_path / ran.stdout.split()[-1]
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wheel.name.startswith("training_frontier-")
    assert {"jobs/py.typed", "orchestrator/py.typed"} <= names
    assert {f"orchestrator/configs/{name}" for name in SHIPPED} <= names
    packaged = {name for name in files if (ROOT / name).exists() and not name.startswith("configs")}
    assert packaged <= names
