"""The lines of JSON between a slot and its parent process, over one socket, with deadlines.

::

    slot (Channel)                           parent (answer, beat)
        │ ◄───────────── hello ──────────────── │  once, after the preload
        │ ── {"spec": ..., "timeout_seconds"} ► │
        │ ◄──────── {"alive": true} ─────────── │  every HEARTBEAT_SECONDS while the trial runs
        │ ◄───────────── record ─────────────── │
"""

import contextlib
import json
import socket
import time
from typing import Any

HEARTBEAT_SECONDS = 5.0
"""How often a parent says that it is alive while it waits for a trial."""
_HEARTBEAT = {"alive": True}


def bounded_timeout(seconds: float) -> float:
    """A trial's timeout, cut to thirty days, because waits are C integers, which overflow."""
    longest = 30 * 24 * 3600.0
    return seconds if seconds < longest else longest  # NaN is cut, too


def _line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


class Channel:
    """The slot's side: owns its socket, and never waits beyond a deadline (monotonic seconds)."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = b""

    def send(self, message: Any, deadline: float) -> None:
        """Send. Raises ConnectionError if the parent has ended, TimeoutError at ``deadline``."""
        self._set_timeout(deadline)
        try:
            self._socket.sendall(_line(message))
        except TimeoutError:
            raise TimeoutError("did not read its next trial") from None

    def receive(self, deadline: float, silence_seconds: float) -> dict[str, Any] | None:
        """The next message that is no heartbeat; None if the parent has ended without one. Raises
        TimeoutError at ``deadline``, or after ``silence_seconds``."""
        begin = time.monotonic()
        while True:
            silent_at = time.monotonic() + silence_seconds
            try:
                line = self._next_line(min(deadline, silent_at))
            except TimeoutError:
                if silent_at <= deadline:
                    raise TimeoutError(f"did not answer for {silence_seconds:.3g} s") from None
                waited = time.monotonic() - begin
                raise TimeoutError(f"was alive, but had no record after {waited:.3g} s") from None
            except ConnectionError:  # the parent ended before it read everything
                return None
            if not line:
                return None
            message: dict[str, Any] = json.loads(line)
            if message != _HEARTBEAT:
                return message

    def end_requests(self) -> None:
        """Ask the parent to end: it reads that no more requests come."""
        with contextlib.suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _next_line(self, deadline: float) -> bytes:
        """The next whole line; empty if the parent has closed the connection."""
        while b"\n" not in self._received:
            self._set_timeout(deadline)
            chunk = self._socket.recv(2**16)
            if not chunk:
                return b""
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _set_timeout(self, deadline: float) -> None:
        # 0 would mean not to wait at all, not even for what has already arrived.
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))


def answer(owner: socket.socket, message: Any) -> None:
    """Send the slot a message. Raises ConnectionError if it is gone."""
    owner.sendall(_line(message))


def beat(owner: socket.socket) -> None:
    """Say that this process is alive, unless the slot has not read for long. Never waits."""
    with contextlib.suppress(BlockingIOError, ConnectionError):
        owner.send(_line(_HEARTBEAT), socket.MSG_DONTWAIT)
