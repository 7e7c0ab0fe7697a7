"""Runs at s3://, against a server of somebody else's on loopback that checks every request's signature."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import orchestrator
from jobs.record import Outcome
from orchestrator import compare, recommend, report, sweep
from orchestrator.reporting.publish import publish
from orchestrator.storage import mirror as publication
from orchestrator.storage.location import Uri, location
from orchestrator.storage.mirror import Mirror
from orchestrator.storage.object_store import Store, StoreError, open_store
from tests.support.records import make_record, write_run

KEY, SECRET = "loopback", "hunter2-planted"
CONFIG = """
model:
  task: sequence-classification
  architecture: bert
  config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64, vocab_size: 128}
data: {synthetic: {sequence_length: 16, samples: 16}}
axes: {micro_batch: [2, 4]}
output: s3://bucket/swept
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Its address, and the folder in which it keeps its one bucket."""
    root = tmp_path_factory.mktemp("s3")
    (root / "bucket").mkdir()
    program = Path(sys.executable).with_name("rclone")
    options = ["--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}", "--config", os.devnull]
    command = [program, "serve", "s3", root, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "Starting s3 server" in line)
        yield re.findall(r"http://[\d.:]+", said)[0], root / "bucket"
        process.terminate()


@pytest.fixture(autouse=True)
def bucket(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What the bucket holds, as files; the credentials where the store's own tools look for them."""
    address, folder = server
    settings = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": address,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return folder


def at(text: str) -> Uri:
    """A URI."""
    found = location(text)
    assert isinstance(found, Uri)
    return found


def some_run(folder: Path) -> Path:
    """Three trials, rendered."""
    records = [
        make_record(micro_batch=size, memory_mib=500 * size, speed=90.0 * size) for size in (1, 2)
    ]
    write_run(folder, [*records, make_record(micro_batch=4, outcome=Outcome.OUT_OF_MEMORY)])
    publish(folder)
    return folder


class Counting(Store):
    """A store that remembers what was copied and removed."""

    def update(self, folder: Path, changed: Collection[str], gone: Collection[str]) -> None:
        self.last = {*changed}, {*gone}
        super().update(folder, changed, gone)


def test_a_run_at_a_uri_is_asked_as_one_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = some_run(tmp_path / "here"), "s3://bucket/asked"
    Mirror(here, open_store(at(there))).send()
    ours, theirs = orchestrator.load(here), orchestrator.load(there)
    assert [dict(row) for row in theirs.rows] == [dict(row) for row in ours.rows]
    assert theirs.losses() == ours.losses()
    assert recommend.main([there, "--memory", "2GiB", "--export", str(tmp_path / "train")]) == 0
    assert compare.main([there, str(here)]) == 0
    assert "batch 2" in capsys.readouterr().out
    assert (tmp_path / "train" / "train.py").exists()


def test_tables_alone_can_be_asked(tmp_path: Path, bucket: Path) -> None:
    here = some_run(tmp_path / "here")
    for record in (here / "records").iterdir():
        record.unlink()
    Mirror(here, open_store(at("s3://bucket/tables"))).send()
    assert len(orchestrator.load("s3://bucket/tables").rows) == 3


def test_only_what_changed_is_copied_and_what_is_gone_removed(tmp_path: Path) -> None:
    here, store = some_run(tmp_path / "here"), Counting(at("s3://bucket/mirrored"))
    store.prepare()
    mirror = Mirror(here, store)
    mirror.bring()
    mirror.send()
    names = {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()}
    assert (store.last, store.names()) == ((names, set()), names)
    mirror.send()
    assert store.last == (set(), set())
    first = min((here / "records").iterdir())
    first.unlink()
    (here / "run.json").write_text('{"name": "again"}')
    mirror.send()
    assert store.last == ({"run.json"}, {f"records/{first.name}"})
    assert store.names() == names - {f"records/{first.name}"}


def test_the_newer_record_wins_wherever_it_is(tmp_path: Path) -> None:
    old, new = make_record(speed=1.0, started_at=100.0), make_record(speed=2.0, started_at=200.0)
    other, uri = make_record(micro_batch=8), at("s3://bucket/two-machines")
    Mirror(write_run(tmp_path / "there", [new, other]), open_store(uri)).send()
    for mine, place in ((old, "behind"), (make_record(speed=3.0, started_at=300.0), "ahead")):
        here = write_run(tmp_path / place, [mine])
        mirror = Mirror(here, open_store(uri))
        mirror.bring()
        speeds = {
            row["micro_batch"]: row["samples_per_second"] for row in orchestrator.load(here).rows
        }
        assert speeds == {4: 2.0 if place == "behind" else 3.0, 8: 100.0}


def test_a_report_is_rendered_where_the_run_lies(
    tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = write_run(tmp_path / "here", [make_record()])
    Mirror(here, open_store(at("s3://bucket/reported"))).send()
    assert not (bucket / "reported" / "report.html").exists()
    assert report.main(["s3://bucket/reported/", "--open-nothing"]) == 0
    assert "runs/s3/bucket/reported/report.html" in capsys.readouterr().out
    assert (bucket / "reported" / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "runs/s3/bucket/reported/trials.parquet").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_sweep_is_published_while_it_runs_and_resumed_elsewhere(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    monkeypatch.setattr(publication, "EVERY_SECONDS", 1.0)
    swept, copied = bucket / "swept", list[set[str]]()

    def copying(mirror: Mirror, send: object = Mirror.send) -> None:
        send(mirror)  # type: ignore[operator]
        copied.append({path.name for path in swept.rglob("*") if path.is_file()})

    monkeypatch.setattr(Mirror, "send", copying)
    assert sweep.main(["tiny.yaml"]) == 0
    first, last = copied[0], copied[-1]
    assert len(copied) > 1
    assert "report.html" not in first
    assert {"run.json", "trials.parquet", "steps.parquet", "report.html", "report.md"} <= last
    assert json.loads((swept / "run.json").read_text()).get("finished", True)
    records = {path.name: path.read_bytes() for path in (swept / "records").glob("*.json")}
    assert len(records) == 2
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    assert sweep.main(["../tiny.yaml", "--resume"]) == 0
    said = "".join(capfd.readouterr())
    assert "2 trials were measured before and are kept" in said
    assert "published to s3://bucket/swept" in said
    assert {path.name: path.read_bytes() for path in (swept / "records").glob("*.json")} == records
    kept = b"".join(
        path.read_bytes()
        for root in (bucket, tmp_path)
        for path in root.rglob("*")
        if path.is_file()
    )
    assert SECRET.encode() not in kept
    assert SECRET not in said


def test_a_refused_bucket_is_a_sentence_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-planted-secret")
    assert sweep.main(["tiny.yaml"]) == 1
    assert recommend.main(["s3://bucket/swept"]) == 2
    assert report.main(["s3://bucket/swept"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert all(
        line.startswith("s3://bucket/swept: ") and "SIGNATURE_DOES_NOT_MATCH" in line
        for line in errors
    )
    assert "planted" not in "".join(errors)


def test_what_is_not_there_is_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    assert recommend.main(["s3://bucket/nothing"]) == 2
    assert report.main(["s3://bucket/nothing"]) == 2
    assert sweep.main(["tiny.yaml", "--resume", "--output", "s3://bucket/nothing"]) == 2
    assert sweep.main(["tiny.yaml", "--output", "s3://no-bucket/run"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("s3://bucket/nothing: no records and no table to recommend from")
    assert said[1].startswith("s3://bucket/nothing: no records and no table to report on")
    assert said[2] == "s3://bucket/nothing: no run to resume"
    assert "NO_SUCH_BUCKET" in said[3]


def test_a_store_that_cannot_be_reached_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreError, match=r"^s3://bucket/x: .*NETWORK_CONNECTION"):
        open_store(at("s3://bucket/x")).names()
