"""Nothing of the user's is written over unless --force is given."""

from pathlib import Path

import pytest

from orchestrator import predict
from orchestrator.cli import EXIT_USAGE
from orchestrator.running.run_lock import locked_run_folder
from orchestrator.storage.run_folder import RunFolder
from orchestrator.storage.user_files import refuse_used_folder
from tests.support.config_files import config_of


def _describe(path: Path, *, force: bool = False) -> None:
    with locked_run_folder(path, resume=False, force=force) as folder:
        folder.describe({"name": "a test"})


def test_used_folder_is_refused_by_the_names_in_it(tmp_path):
    refuse_used_folder(tmp_path)
    refuse_used_folder(tmp_path / "none")
    for name in "abcde":
        (tmp_path / name).touch()
    with pytest.raises(FileExistsError, match="already holds a, b, c and 2 more; nothing was"):
        refuse_used_folder(tmp_path)
    refuse_used_folder(tmp_path, force=True)


def test_sweep_into_the_working_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(FileExistsError, match="already holds report"):
        _describe(Path("."))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    _describe(Path("."), force=True)


def test_sweep_into_its_own_folder_goes_on(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with RunFolder(folder).locked():
        pass  # killed at once
    _describe(folder)
    (folder / "notes.txt").write_text("mine, beside the run")
    _describe(folder)


def test_predict_over_a_table_of_the_users_is_refused(tmp_path, capsys):
    config_of(
        tmp_path, "model: {task: causal-lm, architecture: llama, config: {hidden_size: 64}}\n"
    )
    table = tmp_path / "table.parquet"
    table.write_text("mine")
    arguments = [str(tmp_path / "sweep.yaml"), "--output", str(table)]
    assert predict.main(arguments) == EXIT_USAGE
    assert "already exists; nothing was written" in capsys.readouterr().err
    assert table.read_text() == "mine"
