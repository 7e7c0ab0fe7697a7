"""Runs at hf://: commits, card and credentials, through huggingface_hub to a hub on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard

from orchestrator.reporting.publish import publish
from tests.support.fake_hub import FakeHub, serving
from tests.support.records import make_record, write_run

ROOT = Path(__file__).parents[2]
URI = "hf://datasets/user/frontier"
PUBLISH = """
import sys
from pathlib import Path
import orchestrator
from orchestrator.storage.location import location
from orchestrator.storage.mirror import published

with published(location(sys.argv[1]), Path(sys.argv[2]), None):
    Path(sys.argv[2], "report.md").write_text("changed")
print(len(orchestrator.load(sys.argv[1]).rows))
"""


@pytest.fixture
def hub(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeHub]:
    """An empty one, and a home of its own for what is fetched from it."""
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("home")))
    with serving(FakeHub()) as found:
        yield found


def run(
    hub: FakeHub, code: str, *arguments: str, token: str = ""
) -> subprocess.CompletedProcess[str]:
    """Another process, because the library reads where its hub is when it is imported."""
    own = {
        "HF_ENDPOINT": hub.address,
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": token or hub.token,
        "HF_HUB_DISABLE_XET": "1",
    }
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True
    )


def rendered(folder: Path) -> Path:
    """Two trials and all that is made of them."""
    publish(write_run(folder, [make_record(), make_record(micro_batch=8)]))
    return folder


def test_a_run_is_one_commit_with_a_card_in_a_private_repository(
    hub: FakeHub, tmp_path: Path
) -> None:
    folder = rendered(tmp_path / "run")
    done = run(hub, PUBLISH, URI, str(folder))
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", f"published to {URI}\n")
    files = hub.repositories["user/frontier"]
    here = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert hub.private == {"user/frontier": True}
    assert {*files} == here | {"README.md"}
    assert [{*commit} for commit in hub.commits] == [{*files}]
    again = run(hub, PUBLISH, URI, str(tmp_path / "elsewhere"))
    assert (again.returncode, again.stdout) == (0, "2\n")
    assert hub.commits[1:] == [["report.md"]]


def test_the_card_is_one_that_the_hub_and_datasets_can_read(hub: FakeHub, tmp_path: Path) -> None:
    folder = rendered(tmp_path / "run")
    assert run(hub, PUBLISH, URI, str(folder)).returncode == 0
    text = hub.repositories["user/frontier"]["README.md"].decode()
    card = DatasetCard(text)
    assert card.data.pretty_name == "synthetic on NVIDIA H200"
    tables = {one["config_name"]: one["data_files"] for one in card.data.to_dict()["configs"]}
    assert tables == {path.stem: path.name for path in folder.glob("*.parquet")}
    assert f'orchestrator.load("{URI}")' in text
    (folder / "README.md").write_text(text)
    load = "import sys, datasets; print(datasets.load_dataset(sys.argv[1], sys.argv[2], split='train').num_rows)"
    read = [run(hub, load, str(folder), name).stdout for name in ("trials", "frontier")]
    assert read == ["2\n", "2\n"]


def test_a_refused_token_is_a_sentence_without_it(hub: FakeHub, tmp_path: Path) -> None:
    code = "import sys; from orchestrator import recommend; sys.exit(recommend.main([sys.argv[1]]))"
    done = run(hub, code, URI, token="hf_hunter2")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{URI}: ")
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr
