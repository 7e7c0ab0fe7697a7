"""Where the Ray cluster is: an address that answers, or one that is started here."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress

from jobs.isolation import prewarm
from orchestrator.planning.keys.config_model import Resources
from orchestrator.running.guard import guarded

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client of gRPC begins, with a frame of type 4; a server answers by one (RFC 9113, 3.4)."""
LOCAL = "local"
"""The address that has Ray start a cluster of this machine alone."""


def ray_address(address: str | None) -> str:
    """``address``, else ``RAY_ADDRESS``, else "local": Ray would else look for its last cluster."""
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def is_elsewhere(address: str | None) -> bool:
    """Whether an address is that of a cluster that is there already, not one to start here."""
    return ray_address(address) != LOCAL


def preloading(address: str | None, resources: Resources) -> AbstractContextManager[None]:
    """Start the slots' parents, for trials with these resources, while Ray starts here."""
    # If this process has already joined a Ray, as in a notebook, that Ray is used.
    ray = sys.modules.get("ray")
    is_joined = ray is not None and ray.is_initialized()
    return nullcontext() if is_joined or is_elsewhere(address) else _guarded_parents(resources)


@contextmanager
def _guarded_parents(resources: Resources) -> Iterator[None]:
    """Prewarmed parent processes. A guard ends their trials' processes when this process ends."""
    with guarded() as guard, ExitStack() as stack:
        with guard.marking():
            parents = prewarm.parents(resources.cpus_per_trial, resources.gpus_per_trial)
            stack.enter_context(parents)
        yield


def why_unreachable(address: str) -> str:
    """Why no server of Ray answers at HOST:PORT; empty if one does, or without a port ("auto").
    Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return ""
    try:
        server = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS)
    except OSError as error:
        return f"nothing answers at {address}: {error.strerror or error}"
    with server, suppress(OSError):
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return ""  # nothing is said in the clear
        server.settimeout(ANSWER_SECONDS)
        server.sendall(_HTTP2_GREETING)
        if server.recv(9)[3:4] == b"\x04":
            return ""
    return f"what answers at {address} is no server of Ray, or stands still"


def advice(refusal: str) -> str:
    """What to do about a cluster that answered and then refused."""
    if "version" in refusal.lower():
        return "use the same Python and Ray on both sides"
    return (
        "make sure that the port is the GCS server's (6379 unless chosen otherwise); a cluster that"
        " asks for a token, as that of `ray start` does, needs RAY_AUTH_MODE=token here, and its"
        " token in RAY_AUTH_TOKEN or ~/.ray/auth_token"
    )
