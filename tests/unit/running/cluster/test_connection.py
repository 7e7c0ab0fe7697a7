"""A Ray that cannot be joined, or fails, is a sentence."""

import socket

import pytest

from orchestrator.running.cluster import connection
from orchestrator.running.nodes import ClusterError


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
