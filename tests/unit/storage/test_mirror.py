"""A run folder's copy kept up, through fsspec's own in-memory store and stores that fail."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

import pytest

import orchestrator
from orchestrator.storage import mirror
from orchestrator.storage.location import Uri, location
from orchestrator.storage.mirror import published
from orchestrator.storage.object_store import Store, StoreError, needed, open_store
from tests.support.records import make_record, write_run

URI = Uri(scheme="memory", path="bucket/run")


class Refusing(Store):
    """A store that can be begun with, and then not be written; ``asked`` is set when it was tried."""

    asked = threading.Event()

    def update(self, folder: Path, changed: Collection[str], gone: Collection[str]) -> None:
        self.asked.set()
        raise StoreError(f"{self.uri}: no more room")


def test_whatever_fsspec_speaks_can_hold_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with published(URI, folder, None):
        write_run(folder, [make_record(), make_record(micro_batch=8)])
    assert capsys.readouterr().err == "published to memory://bucket/run\n"
    assert open_store(URI).names() >= {"run.json"}
    assert len(orchestrator.load("memory://bucket/run").rows) == 2
    with published(URI, again := tmp_path / "again", None):
        assert len(orchestrator.load(again).rows) == 2


def test_pages_are_rendered_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "EVERY_SECONDS", 0.0)
    rendered = threading.Semaphore(0)
    with published(URI, write_run(tmp_path, [make_record()]), lambda folder: rendered.release()):
        assert rendered.acquire(timeout=60)
        assert rendered.acquire(timeout=60)


def test_a_store_that_fails_in_mid_run_is_named_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mirror, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(mirror, "open_store", Refusing)
    folder = write_run(tmp_path / "run", [make_record()])

    @published(URI, folder, None)
    def run() -> None:
        for _ in range(3):
            Refusing.asked.clear()
            assert Refusing.asked.wait(timeout=60)

    with pytest.raises(
        StoreError, match=rf"no more room; the run is whole in {folder}, and --resume publishes it"
    ):
        run()
    said = capsys.readouterr().err
    assert (
        said
        == f"-- {URI}: no more room; the run goes on in {folder}, and publishing it is tried again\n"
    )


def test_no_name_in_a_store_leads_out_of_the_folder() -> None:
    hostile = {
        "records/../../x.json",
        "../run.json",
        "a/records/x.json",
        "../x.parquet",
        "/x.parquet",
    }
    assert needed({*hostile, "run.json", "trials.parquet"}) == {"run.json", "trials.parquet"}
    assert needed({*hostile, "run.json", "trials.parquet", "records/x.json"}) == {
        "run.json",
        "records/x.json",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sftp://host/run", 'requires "paramiko"'),
        ("abfs://container/run", "Install adlfs"),
        ("nope://a/b", "nope"),
    ],
)
def test_a_scheme_whose_package_is_missing_is_a_sentence(text: str, said: str) -> None:
    place = location(text)
    assert isinstance(place, Uri)
    with pytest.raises(StoreError, match=said) as caught:
        open_store(place)
    assert str(caught.value).startswith(f"{text}: ")
