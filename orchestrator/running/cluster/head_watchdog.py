"""Watches the cluster's head. If the head is lost, Ray would end the driver without a message."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import ray
import ray._private.worker

from orchestrator.running.cluster.own_ray import end_at_once

_CHECK_SECONDS = 1.0
_QUESTION = b"orchestrator"
"""A key that no cluster has, so that the answer is short."""


@contextlib.contextmanager
def watched_head() -> Iterator[None]:
    """End this process with a sentence and exit status 1 if the head is gone for too long.

    Ray cannot even shut down then, so the process ends at once. Every record that has arrived is
    already on disk.
    """
    address = str(ray.get_runtime_context().gcs_address)
    is_over = threading.Event()
    threading.Thread(target=_watch, args=(address, is_over), daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _watch(address: str, is_over: threading.Event) -> None:
    # A single missed answer does not count as a loss, because a busy head may take a second.
    last_answer = time.monotonic()
    limit = _limit_seconds()
    while not is_over.wait(_CHECK_SECONDS):
        if _answers():
            last_answer = time.monotonic()
        if time.monotonic() - last_answer > limit:
            _end_process(address)


def _limit_seconds() -> float:
    """Half the time after which Ray would end this process, so that the message comes first."""
    name = "RAY_gcs_rpc_server_reconnect_timeout_s"
    return float(os.environ.get(name, "60")) / 2


def _answers() -> bool:
    """Whether the head answers a request. A stopped head still accepts connections."""
    worker: Any = ray._private.worker.global_worker
    client = worker.gcs_client
    try:
        client.internal_kv_get(_QUESTION, namespace=_QUESTION, timeout=_CHECK_SECONDS)
    except ray.exceptions.RayError:
        return False
    return True


def _end_process(address: str) -> None:
    sentence = f"the Ray cluster was lost: its head at {address} does not answer; --resume goes on"
    print(sentence, file=sys.stderr, flush=True)
    end_at_once()
