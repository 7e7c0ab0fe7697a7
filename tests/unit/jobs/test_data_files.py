"""What a path or pattern of data may name: nothing of the system's, no pipe, no device."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from jobs.data_files import problem_of_path
from jobs.spec import DatasetFile
from jobs.trial.data.user_file import named_rows

SYSTEM = "it belongs to the system"


@pytest.mark.parametrize("pattern", ["", "*", "*.csv", "**", "**/*.csv", "deep/*", "deep/in/*.csv"])
def test_link_into_the_system_is_found_behind_any_pattern(pattern: str, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "in"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("text,labels\na,0\n")
    (tmp_path / "deep" / "b.csv").write_text("text,labels\na,0\n")
    assert problem_of_path(str(tmp_path / pattern)) == ""
    (folder / "z.csv").symlink_to("/proc/self/environ")
    problem = problem_of_path(str(tmp_path / pattern))
    # A pattern of one level reaches no deeper file.
    assert problem.endswith(SYSTEM) or pattern == "*.csv"


def test_links_between_folders_are_not_followed_for_ever(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "root").symlink_to("/")
    assert problem_of_path(str(tmp_path / "**" / "**" / "*.json")) == ""


@pytest.mark.parametrize("pattern", ["", "*.json", "**/*.json"])
def test_pipe_is_found_in_a_folder(pattern: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    assert "is no file but a pipe" in problem_of_path(str(tmp_path / pattern))


def test_disk_in_memory_holds_data() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".csv") as file:
        assert problem_of_path(file.name) == ""


@pytest.mark.parametrize("path", ["hf://datasets/a/b", "https://host/x", "zip://a::/proc/1/x"])
def test_address_is_no_path(path: str) -> None:
    assert problem_of_path(path).endswith("is not a path on this machine")


def test_trial_reads_nothing_of_the_system_behind_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,labels\na,0\n")
    (tmp_path / "b.csv").symlink_to("/proc/self/environ")
    with pytest.raises(ValueError, match=SYSTEM) as error:
        named_rows(DatasetFile(path=str(tmp_path / "*.csv"), format="csv"))
    assert error.value.__context__ is None
    assert "PATH=" not in str(error.value)
