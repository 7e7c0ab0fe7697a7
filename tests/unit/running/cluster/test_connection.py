"""A Ray that cannot be joined, or fails, is a sentence."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from orchestrator.running.cluster import connection
from orchestrator.running.nodes import ClusterError

SLEEP = shutil.which("sleep") or ""


def test_cluster_that_does_not_answer_is_a_sentence(monkeypatch):
    monkeypatch.setattr(connection.ray, "is_initialized", lambda: False)  # by another test
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with (
            pytest.raises(ClusterError, match=f"nothing answers at {address}"),
            connection.connected(address),
        ):
            pass


def test_warnings_of_ray_while_it_joins_a_cluster_are_not_shown_and_our_notes_are(
    monkeypatch, capfd
):
    def init(**options: object) -> None:
        os.write(2, b"[2026-11-30 11:12:47 W 17940] rpc_client.h:153: Failed to connect\n")
        print("note: counting the parameters", file=sys.stderr)
        raise ConnectionError("it is no GCS server")

    monkeypatch.setattr(connection.ray, "init", init)
    with pytest.raises(ClusterError, match="it is no GCS server"), connection._ray_at("auto"):
        pass
    print("after", file=sys.stderr)
    assert capfd.readouterr().err == "note: counting the parameters\nafter\n"


def test_error_of_ray_with_a_traceback_is_named_by_its_last_line():
    text = (
        "Traceback (most recent call last):\n"
        '  File "event_manager.py", line 110, in resolve_future\n'
        "    result = ray.get(future)\n"
        "OSError: [Errno 28] No space left on device\n"
    )
    with pytest.raises(ClusterError) as caught, connection._errors_of_ray():
        raise connection.tune.TuneError(text)
    assert str(caught.value) == (
        "the Ray cluster failed: OSError: [Errno 28] No space left on device; "
        "the same command with --resume goes on"
    )


def test_ray_whose_raylet_ends_while_it_starts_is_started_once_more(tmp_path, monkeypatch, capfd):
    folders: list[str] = []
    said: list[str] = []
    processes: list[subprocess.Popen[bytes]] = []

    def init(*, _temp_dir: str, **options: object) -> None:
        """Two processes of these names; the first raylet ends, and Ray notices it late."""
        folders.append(_temp_dir)
        Path(_temp_dir, "session_1", "logs").mkdir(parents=True)
        for name in ("gcs_server", "raylet"):
            program = tmp_path / f"{len(folders)}" / name
            program.parent.mkdir(exist_ok=True)
            shutil.copy(SLEEP, program)
            processes.append(subprocess.Popen([program, "600"]))
        if len(folders) == 1:
            both = [psutil.Process(own.pid) for own in processes]
            while {own.name() for own in both} != {"gcs_server", "raylet"}:
                time.sleep(0.01)
            processes[1].kill()
            while "it is started once more" not in (text := capfd.readouterr().err):
                time.sleep(0.01)
            said.append(text)
            raise RuntimeError("The current node timed out during startup")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(connection.ray, "init", init)
    with connection._ray_at(connection.LOCAL):
        assert len(set(folders)) == 2
    logs = re.match(r"Ray did not start: its raylet has ended; its logs are in (.*?); ", said[0])
    assert Path(logs[1]).is_dir()
    assert {process.wait() for process in processes} == {-signal.SIGKILL}


def test_ray_that_does_not_shut_down_is_killed_after_a_while(monkeypatch):
    killed = threading.Event()
    seen = []
    monkeypatch.setattr(connection, "_SHUTDOWN_SECONDS", 0.01)
    monkeypatch.setattr(connection.ray, "shutdown", lambda: seen.append(killed.wait(60)))
    connection._shut_down(SimpleNamespace(end_marked=killed.set))
    assert seen == [True]
