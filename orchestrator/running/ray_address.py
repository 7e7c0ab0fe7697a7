"""Where a cluster is to be: what answers or refuses there, or one starts here, and what can begin at once."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import AbstractContextManager, nullcontext

from jobs.isolation import prewarm

CONNECT_SECONDS = 5.0


def whereabouts(address: str | None) -> str:
    """What Ray is to be given: ``address``, else ``RAY_ADDRESS``, else "local" to start a cluster here.

    Left to itself, Ray joins whatever was last started on this machine, and waits for one that has died.
    """
    return address or os.environ.get("RAY_ADDRESS") or "local"


def preloading(address: str | None, cpus: int) -> AbstractContextManager[None]:
    """Where a cluster is to be started here, its slots' parents preload from now on; ``cpus`` as in its trials' needs.

    Not even Ray has been imported by then, which takes as long as it takes to start.
    """
    ray = sys.modules.get("ray")
    joined = ray is not None and ray.is_initialized()
    return nullcontext() if joined or whereabouts(address) != "local" else prewarm.parents(cpus)


def unreachable(address: str) -> str:
    """Why nothing answers at HOST:PORT; empty when something does, or when Ray is to look for itself ("auto")."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return ""
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        return f"nothing answers at {address}: {error.strerror or error}"
    return ""


def to_mend(refusal: str) -> str:
    """What to do about a cluster that answered and then refused."""
    if "version" in refusal.lower():
        return "use the same Python and Ray on both sides"
    return (
        "make sure that the port is the GCS server's (6379 unless chosen otherwise), and that RAY_AUTH_MODE and"
        " RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) are the cluster's"
    )
