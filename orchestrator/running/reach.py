"""Whether anything answers where a cluster is said to be, before Ray waits for it for minutes."""

from __future__ import annotations

import socket

CONNECT_SECONDS = 5.0


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
