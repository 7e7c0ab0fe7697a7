"""The lines of JSON between a slot and its parent process, with deadlines.

::

    slot (Channel)                           parent (Owner)
        │ ◄───────────── hello ──────────────── │  once, after the preload
        │ ── {"spec": ..., "timeout_seconds"} ► │
        │ ◄──────── {"alive": true} ─────────── │  every HEARTBEAT_SECONDS while the trial runs
        │ ◄───────────── record ─────────────── │
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from typing import Any

HEARTBEAT_SECONDS = 5.0
"""How often a parent says that it is alive while it waits for a trial."""
LONGEST_TIMEOUT_SECONDS = 30 * 24 * 3600.0
"""Thirty days: longer timeouts of trials are cut to this. Operating systems count waits in C
integers, which overflow, and no trial is worth a longer wait."""
_HEARTBEAT = {"alive": True}
_LONGEST_POLL_SECONDS = 3600.0
_READ_BYTES = 2**16


def bounded_timeout(seconds: float) -> float:
    """A trial's timeout, cut to ``LONGEST_TIMEOUT_SECONDS``. Infinity and NaN are cut, too."""
    if seconds < LONGEST_TIMEOUT_SECONDS:
        return seconds
    return LONGEST_TIMEOUT_SECONDS


class Channel:
    """The slot's side. It owns its two descriptors, and never waits beyond a deadline.

    Deadlines are in monotonic seconds.
    """

    def __init__(self, requests: int, replies: int) -> None:
        """``requests`` is written to, ``replies`` is read from."""
        self._requests: int | None = requests
        self._replies = replies
        self._received = b""
        # Without blocking, neither a write nor a read waits longer than ``poll`` allows. These are
        # this process's own ends of the pipes: the parent's ends stay as they are.
        os.set_blocking(requests, False)
        os.set_blocking(replies, False)

    def send(self, message: Any, deadline: float) -> None:
        """Send a message. Raises BrokenPipeError if the parent has ended.

        Raises TimeoutError at ``deadline``.
        """
        assert self._requests is not None
        left = memoryview(json.dumps(message).encode() + b"\n")
        while left:
            try:
                _wait_for(self._requests, select.POLLOUT, deadline)
            except TimeoutError:
                raise TimeoutError("did not read its next trial") from None
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(self._requests, left) :]

    def receive(self, deadline: float, silence_seconds: float) -> dict[str, Any] | None:
        """The next message that is no heartbeat; None if the parent has ended without one.

        Raises TimeoutError at ``deadline``, or after ``silence_seconds`` without any message; its
        text says which.
        """
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
            if line is None:
                return None
            message: dict[str, Any] = json.loads(line)
            if message != _HEARTBEAT:
                return message

    def end_requests(self) -> None:
        """Close the pipe of requests, which asks the parent to end."""
        if self._requests is not None:
            os.close(self._requests)
            self._requests = None

    def close(self) -> None:
        """Close both pipes."""
        self.end_requests()
        os.close(self._replies)

    def _next_line(self, deadline: float) -> bytes | None:
        while b"\n" not in self._received:
            _wait_for(self._replies, select.POLLIN, deadline)
            with contextlib.suppress(BlockingIOError):
                chunk = os.read(self._replies, _READ_BYTES)
                if not chunk:
                    return None
                self._received += chunk
        # What follows the line is the beginning of the next message.
        line, _, self._received = self._received.partition(b"\n")
        return line


class Owner:
    """The parent's side: where its requests come from and its answers go to."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests = requests
        self._answers = answers

    @property
    def descriptors(self) -> tuple[int, int]:
        """Both descriptors. A forked child must close its copies of them.

        Otherwise the slot could not see that this process has ended.
        """
        return self.requests, self._answers

    def answer(self, message: Any) -> None:
        """Send a message. Raises BrokenPipeError if the slot is gone."""
        left = memoryview(json.dumps(message).encode() + b"\n")
        while left:
            left = left[os.write(self._answers, left) :]

    def beat(self) -> None:
        """Say that this process is alive, unless the slot has not read for long. Never waits."""
        poll = select.poll()
        poll.register(self._answers, select.POLLOUT)
        if poll.poll(0):
            # A pipe that is ready for writing takes PIPE_BUF bytes at once; a heartbeat is shorter.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._answers, json.dumps(_HEARTBEAT).encode() + b"\n")


def _wait_for(descriptor: int, event: int, deadline: float) -> None:
    """Wait until a descriptor is ready, or has lost its other end. Raises TimeoutError."""
    poll = select.poll()
    poll.register(descriptor, event)
    while True:
        seconds = deadline - time.monotonic()
        # poll counts milliseconds in a C integer, so a long wait is cut into pieces.
        if poll.poll(max(0.0, min(seconds, _LONGEST_POLL_SECONDS)) * 1000):
            return
        if seconds <= 0:
            raise TimeoutError
