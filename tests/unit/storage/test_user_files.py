"""Nothing of the user's is written over unless --force is given."""

import json
import shutil
from pathlib import Path

import pytest

from orchestrator import api, compare, explain, predict, recommend, report
from orchestrator.cli import EXIT_USAGE
from orchestrator.running.run_lock import locked_run_folder
from orchestrator.storage.run_folder import RunFolder
from orchestrator.storage.tables.table_reader import trial_ids_in_file
from orchestrator.storage.user_files import refuse_used_folder
from tests.support.config_files import config_of
from tests.support.records import make_grid, write_run


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


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published run of six trials, of which one record is cut and one of a newer version."""
    folder = write_run(tmp_path_factory.mktemp("published"), make_grid()[:6])
    for path in (folder / "records").iterdir():
        path.rename(path.with_name(f"{path.stem.partition('-')[0]}.json"))
    assert report.main([str(folder), "--no-browser"]) == 0
    paths = sorted((folder / "records").glob("*.json"))
    paths[0].write_text(paths[0].read_text()[:100])
    newer = {**json.loads(paths[1].read_text()), "schema_version": 99}
    paths[1].write_text(json.dumps(newer))
    return folder


@pytest.fixture
def folder(published: Path, tmp_path: Path) -> Path:
    """That run, to be changed."""
    return shutil.copytree(published, tmp_path / "run")


def rows(folder: Path) -> int:
    return len(trial_ids_in_file(folder / "trials.parquet"))


def test_report_refuses_to_lose_rows_and_names_the_records(folder, capsys):
    tables = {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
    capsys.readouterr()
    assert report.main([str(folder), "--no-browser"]) == 1
    said = capsys.readouterr().err
    first, second = sorted((folder / "records").glob("*.json"))[:2]
    assert "2 rows that would be lost" in said
    assert f"1 record cannot be read (damaged, or no record of this program): {first}" in said
    assert f"a newer version of this program wrote it: {second}" in said
    assert {path.name: path.read_bytes() for path in folder.glob("*.parquet")} == tables


def test_report_writes_fewer_rows_on_request_and_keeps_the_old_table(folder):
    assert report.main([str(folder), "--no-browser", "--allow-fewer-rows"]) == 0
    assert rows(folder) == 4
    (kept,) = folder.glob("superseded/*/trials.parquet")
    assert len(trial_ids_in_file(kept)) == 6
    assert report.main([str(folder), "--no-browser"]) == 0


@pytest.mark.parametrize("main", [recommend.main, compare.main, explain.main])
def test_verb_names_and_counts_unreadable_records(main, folder, capsys):
    first, second, *others = (path.stem for path in sorted((folder / "records").glob("*.json")))
    arguments = {
        recommend.main: [],
        compare.main: [str(folder)],
        explain.main: [others[0], others[1]],
    }
    main([str(folder), *arguments[main]])
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert any(first in note for note in notes)
    assert any(second in note and "newer version" in note for note in notes)


def test_loaded_run_says_what_is_unreadable(folder):
    run = api.load(folder)
    assert len(run.unreadable) == 2
    assert "newer version" in repr(run)


def test_run_of_unreadable_records_alone_is_a_sentence(folder, capsys):
    for path in folder.glob("*.parquet"):
        path.unlink()
    for path in (folder / "records").glob("*.json"):
        path.write_text("{}")
    assert recommend.main([str(folder)]) == 2
    assert "6 records cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "config",
    [
        {"model": 3},
        {"model": {"config": "x"}},
        {"data": []},
        {"axes": {"micro_batch": 3}},
        {"measure": "fast"},
        3,
        ["x"],
    ],
)
def test_damaged_run_json_is_named_in_a_sentence(config, folder, capsys):
    for table in folder.glob("*.parquet"):
        table.unlink()
    (folder / "run.json").write_text(json.dumps({"config": config, "schema_version": 2}))
    for main in (report.main, recommend.main):
        assert main([str(folder)]) == 2
        assert "run.json: damaged or not of this program" in capsys.readouterr().err


def test_records_moved_aside_are_no_loss_and_deleted_ones_are(folder):
    first, second, third, *_ = sorted((folder / "records").glob("*.json"))
    for path in (first, second):
        RunFolder(folder).set_aside(path.stem)
    assert report.main([str(folder), "--no-browser"]) == 0
    assert rows(folder) == 4
    third.unlink()
    assert report.main([str(folder), "--no-browser"]) == 1
    assert rows(folder) == 4
