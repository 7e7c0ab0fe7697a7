"""Where the Ray cluster is: an address that answers, or one that is started here."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from jobs.isolation import prewarm
from orchestrator.running.guard import guarded

CONNECT_SECONDS = 5.0
LOCAL = "local"
"""The address that has Ray start a cluster of this machine alone."""


def ray_address(address: str | None) -> str:
    """What to give Ray: ``address``, else ``RAY_ADDRESS``, else "local" to start a cluster here.

    Without an address, Ray would join the cluster that was last started on this machine. It would
    wait for it even if that cluster has ended.
    """
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def is_elsewhere(address: str | None) -> bool:
    """Whether an address is that of a cluster that is there already.

    Otherwise Ray is started for this machine alone.
    """
    return ray_address(address) != LOCAL


def preloading(address: str | None, cpus: int) -> AbstractContextManager[None]:
    """Start the slots' parent processes early, if a cluster will be started here.

    They import their modules while Ray is imported and starts. ``cpus`` are the cores of a trial.
    Zero stands for the share of its GPU.
    """
    # If this process has already joined a Ray, as in a notebook, that Ray is used.
    ray = sys.modules.get("ray")
    is_joined = ray is not None and ray.is_initialized()
    if is_joined or is_elsewhere(address):
        return nullcontext()
    return _guarded_parents(cpus)


@contextmanager
def _guarded_parents(cpus: int) -> Iterator[None]:
    """Prewarmed parent processes. A guard ends their trials' processes when this process ends."""
    with guarded() as guard, ExitStack() as stack:
        with guard.marking():
            stack.enter_context(prewarm.parents(cpus))
        yield


def why_unreachable(address: str) -> str:
    """Why nothing answers at HOST:PORT; empty if something does.

    Also empty without a port: with "auto", Ray looks for a cluster itself.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return ""
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        return f"nothing answers at {address}: {error.strerror or error}"
    return ""


def advice(refusal: str) -> str:
    """What to do about a cluster that answered and then refused."""
    if "version" in refusal.lower():
        return "use the same Python and Ray on both sides"
    return (
        "make sure that the port is the GCS server's (6379 unless chosen otherwise), and that"
        " RAY_AUTH_MODE and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) are the cluster's"
    )
