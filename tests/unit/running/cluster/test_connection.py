"""Which cluster a sweep joins: the one that is named, and no other that runs on this machine."""

import socket
from typing import Any

import pytest

from orchestrator.running.cluster import connection
from orchestrator.running.nodes import ClusterError


@pytest.mark.parametrize(
    ("address", "environment", "joined"),
    [
        (None, "", "local"),
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        ("auto", "10.0.0.1:6379", "auto"),
    ],
)
def test_cluster_is_joined_only_where_it_is_named(address, environment, joined, monkeypatch):
    addresses: list[Any] = []

    def refuse(**options: Any) -> None:
        addresses.append(options["address"])
        raise ConnectionError

    monkeypatch.setenv("RAY_ADDRESS", environment)
    monkeypatch.setattr(connection.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(connection.ray, "init", refuse)
    monkeypatch.setattr(connection, "why_unreachable", lambda address: "")
    with pytest.raises(ClusterError), connection.connected(address):
        pass
    assert addresses == [joined]


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
