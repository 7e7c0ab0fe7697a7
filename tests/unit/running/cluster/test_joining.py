"""Which cluster a sweep joins: the one that it is told of, and no other that happens to be on this machine."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from orchestrator.running import cluster
from orchestrator.running.nodes import ClusterError


@pytest.mark.parametrize(
    ("address", "environment", "joined"),
    [
        (None, "", "local"),
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        ("auto", "10.0.0.1:6379", "auto"),
    ],
)
def test_a_cluster_is_joined_only_where_it_is_named(
    address: str | None, environment: str, joined: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def stop(**options: Any) -> None:
        asked.append(options["address"])
        raise ConnectionError

    monkeypatch.setenv("RAY_ADDRESS", environment)
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", stop)
    monkeypatch.setattr(cluster, "unreachable", lambda address: "")
    with pytest.raises(ClusterError), cluster.connected(address):
        pass
    assert asked == [joined]


def test_a_cluster_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)  # other tests' own
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(ClusterError, match=f"nothing answers at {address}"),
            cluster.connected(address),
        ):
            pass
