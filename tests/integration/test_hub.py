"""Runs at hf://: commits, card and credentials, through huggingface_hub to a hub on loopback."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from huggingface_hub import DatasetCard

from orchestrator.reporting.markdown import dataset_card
from orchestrator.reporting.publish import publish
from tests.support.commands import python
from tests.support.fake_hub import FakeHub, serving
from tests.support.records import make_record, write_run

URI = "hf://datasets/user/frontier"
UPLOAD = """
import sys
from pathlib import Path
from orchestrator.api import load
from orchestrator.storage.location import location
from orchestrator.storage.remote import check_writable, upload

uri, folder, card = location(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
check_writable(uri)
upload(folder, uri, card=card)
print(len(load(sys.argv[1]).dataset.rows))
"""
LOAD = """
import sys, datasets
print(datasets.load_dataset(sys.argv[1], sys.argv[2], split="train").num_rows)
"""
RECOMMEND = "import sys; from orchestrator import recommend; sys.exit(recommend.main(sys.argv[1:]))"


@pytest.fixture
def hub(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeHub]:
    """An empty hub, and a separate home for the files fetched from it."""
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("home")))
    with serving(FakeHub()) as hub:
        yield hub


def _run(
    hub: FakeHub, code: str, *arguments: str, token: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run code in another process: the library reads the hub's address when it is imported."""
    variables = {
        "HF_ENDPOINT": hub.address,
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": token or hub.token,
        "HF_HUB_DISABLE_XET": "1",
    }
    return python("-c", code, *arguments, env={**os.environ, **variables})


def test_run_is_one_commit_with_a_readable_card_in_a_private_repository(hub, tmp_path):
    folder = write_run(tmp_path / "run", [make_record(), make_record(micro_batch=8)])
    card = dataset_card(publish(folder), URI)
    (folder / "lock").write_text("held")
    done = _run(hub, UPLOAD, URI, str(folder), card)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    files = hub.repositories["user/frontier"]
    local = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {*files} == local - {"lock"}
    assert hub.private == {"user/frontier": True}
    assert [{*commit} for commit in hub.commits] == [{*files}]
    text = files["README.md"].decode()
    tables = {row["config_name"]: row["data_files"] for row in DatasetCard(text).data["configs"]}
    assert tables == {path.stem: path.name for path in folder.glob("*.parquet")}
    rows = [_run(hub, LOAD, str(folder), name).stdout for name in ("trials", "frontier")]
    assert rows == ["2\n", "2\n"]


def test_record_that_the_run_dropped_is_deleted_on_the_hub(hub, tmp_path):
    folder = write_run(tmp_path / "run", [make_record(), make_record(micro_batch=8)])
    assert _run(hub, UPLOAD, URI, str(folder), "").stdout == "2\n"
    dropped = next((folder / "records").iterdir())
    dropped.unlink()
    done = _run(hub, UPLOAD, URI, str(folder), "")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert f"records/{dropped.name}" not in hub.repositories["user/frontier"]


def test_refused_token_is_a_sentence_without_it(hub):
    done = _run(hub, RECOMMEND, URI, token="hf_hunter2")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{URI}: ")
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr
