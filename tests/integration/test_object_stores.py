"""Runs at s3://, against rclone as a server on loopback that checks every request's signature."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import recommend, report, sweep
from tests.conftest import TINY_CONFIG

KEY = "loopback"
SECRET = "hunter2-planted"
CONFIG = (
    TINY_CONFIG
    + """\
axes: {micro_batch: [2, 4]}
output: s3://bucket/swept
"""
)


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
        started = next(line for line in process.stderr if "Starting s3 server" in line)
        yield re.findall(r"http://[\d.:]+", started)[0], root / "bucket"
        process.terminate()


@pytest.fixture(autouse=True)
def bucket(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The bucket's files; the credentials are where the store's own tools look for them."""
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
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return folder


def _records(folder: Path) -> dict[str, bytes]:
    """The content of every record. An empty file counts as absent."""
    files = (folder / "records").glob("*.json")
    return {path.name: path.read_bytes() for path in files if path.stat().st_size}


def _contents(*roots: Path) -> bytes:
    files = (path for root in roots for path in root.rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_with_libraries")
def test_sweep_at_a_uri_is_uploaded_asked_and_resumed_elsewhere(
    tmp_path, bucket, monkeypatch, capfd
):
    assert sweep.main(["tiny.yaml"]) == 0
    swept = bucket / "swept"
    names = {path.name for path in swept.iterdir()}
    assert {"run.json", "trials.parquet", "steps.parquet", "report.html", "report.md"} <= names
    records = _records(swept)
    assert len(records) == 2
    exported = tmp_path / "train"
    assert recommend.main(["s3://bucket/swept", "--export", str(exported)]) == 0
    assert (exported / "train.py").exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert sweep.main(["../tiny.yaml", "--resume"]) == 0
    assert _records(swept) == records
    printed = "".join(capfd.readouterr())
    assert "published to s3://bucket/swept" in printed
    assert SECRET not in printed
    assert SECRET.encode() not in _contents(bucket, tmp_path)


def test_refused_key_is_a_sentence_before_anything_starts(monkeypatch, capsys):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-planted-secret")
    assert sweep.main(["tiny.yaml"]) == 1
    assert recommend.main(["s3://bucket/swept"]) == 2
    assert report.main(["s3://bucket/swept"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    for line in errors:
        assert line.startswith("s3://bucket/swept: ")
        assert "SIGNATURE_DOES_NOT_MATCH" in line
        assert "planted" not in line
