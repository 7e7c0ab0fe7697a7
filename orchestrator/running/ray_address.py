"""Where the Ray cluster is: an address that answers, or one that is started here."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from jobs.isolation import prewarm
from orchestrator.running import orphans

CONNECT_SECONDS = 5.0


def ray_address(address: str | None) -> str:
    """What to give Ray: ``address``, else ``RAY_ADDRESS``, else "local" to start a cluster here.

    Left to itself, Ray joins whatever was last started on this machine, and waits for a cluster
    that has died.
    """
    return address or os.environ.get("RAY_ADDRESS") or "local"


def preloading(address: str | None, cpus: int) -> AbstractContextManager[None]:
    """Where a cluster is to be started here, the slots' parents preload from now on.

    They do so while Ray is imported and starts. ``cpus`` are a trial's cores; 0: its GPU's share.
    """
    # A Ray that runs in this process already, as in a notebook, is used as it is.
    ray = sys.modules.get("ray")
    is_joined = ray is not None and ray.is_initialized()
    if is_joined or ray_address(address) != "local":
        return nullcontext()
    return _guarded_parents(cpus)


@contextmanager
def _guarded_parents(cpus: int) -> Iterator[None]:
    """Prewarmed parents. What their trials have started ends with this process, even if killed."""
    with orphans.guard() as guard, ExitStack() as stack:
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
