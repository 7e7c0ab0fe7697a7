"""The cluster's head, watched: when it is lost Ray ends the process that is connected to it, without a sentence."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

import ray

_EVERY_SECONDS = 1.0


def _patience_seconds() -> float:
    """Half of what Ray waits before it ends the process."""
    return float(os.environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", "60")) / 2  # noqa: SIM112 (as Ray has it)


@contextlib.contextmanager
def watched_head() -> Iterator[None]:
    """End this process in a sentence, with exit status 1, when the head has not been in reach for too long.

    Nothing can be asked of Ray by then, not even to shut down. Every record that has arrived is on disk.
    """
    address = str(ray.get_runtime_context().gcs_address)
    over = threading.Event()
    threading.Thread(target=_watch, args=(address, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(address: str, over: threading.Event) -> None:
    host, _, port = address.rpartition(":")
    seen = time.monotonic()
    while not over.wait(_EVERY_SECONDS):
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host.strip("[]"), int(port)), timeout=_EVERY_SECONDS),
        ):
            seen = time.monotonic()
        if time.monotonic() - seen > _patience_seconds():
            print(
                f"the Ray cluster was lost: its head at {address} does not answer; --resume goes on",
                file=sys.stderr,
            )
            sys.stderr.flush()
            os._exit(1)
