"""A slot's long-lived process: preloads once, then has each trial run in a child of its own.

It answers each line of JSON from its socket with one. Closing the other end ends it and its child.
"""

import contextlib
import functools
import gc
import json
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobs.isolation import prewarm
from jobs.isolation.build_ops import remove_abandoned_locks
from jobs.isolation.channel import answer
from jobs.isolation.child_runner import ChildRunner
from jobs.isolation.preload import preload, remember_processor, unclean
from jobs.isolation.scratch import SLOT_PREFIX, own_folder
from jobs.node import environment
from jobs.node.processes import continue_without_owner
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec, from_json, to_json


def serve(connect: Callable[[], socket.socket], folder: Path) -> None:
    """Preload, send the first message, then run trials until the requests end. ``connect`` returns
    the socket to the slot. Until it returns, this process may not use the GPU."""
    # Preloading comes first: a prewarmed parent does it before there is a slot.
    preload_seconds = preload()
    owner = connect()
    not_forkable = unclean()
    # The garbage collector shall not write to pages that children share with this process.
    gc.collect()
    gc.freeze()
    about = {"unclean": not_forkable, "environment": environment.describe()}
    answer(owner, {"preload_seconds": preload_seconds, **about})
    with contextlib.closing(ChildRunner(folder, owner)) as children:
        for request in _requests(owner, children):
            spec = from_json(TrialSpec, request["spec"])
            record = _run(children, spec, request["timeout_seconds"], not_forkable)
            answer(owner, to_json(record))
            children.fork_ahead(record)


def _run(
    children: ChildRunner, spec: TrialSpec, timeout_seconds: float, not_forkable: str
) -> TrialRecord:
    """Run one trial; ``not_forkable`` is why this process must not be forked, empty if it may."""
    isolation = "fresh" if not_forkable else spec.measure.isolation
    uses_deepspeed = spec.settings.deepspeed is not None
    # DeepSpeed asks for the processor's features, which takes seconds; children inherit the answer.
    if isolation == "fork" and uses_deepspeed and remember_processor():
        children.discard_next()  # it was forked before the processor was looked at
    record = children.run(spec, timeout_seconds, isolation, not_forkable)
    if uses_deepspeed and record.outcome is not Outcome.OK:
        children.reap()
        # A killed child may have been building an op.
        remove_abandoned_locks(begun_since=record.started_at)
    return record


def _requests(
    connection: socket.socket, children: ChildRunner, idle_seconds: float = 10.0
) -> Iterator[dict[str, Any]]:
    """The requests as they come. Without one for ``idle_seconds``, the waiting child is ended."""
    with connection.makefile() as lines, contextlib.suppress(ConnectionError):
        while True:
            # None waits in the buffer of ``lines``: each is sent after the last one was answered.
            if not select.select([connection], [], [], idle_seconds)[0]:
                children.discard_next()
            line = lines.readline()
            if not line:
                return
            yield json.loads(line)


def main() -> None:
    """Serve the slot at standard input's socket, or, preloaded, at ``--socket DESCRIPTOR``."""
    os.dup2(2, 1)  # a library that prints while being imported must not garble the replies
    with own_folder(SLOT_PREFIX) as folder:
        if sys.argv[1:2] == ["--socket"]:
            listener = socket.socket(fileno=int(sys.argv[2]))
            serve(functools.partial(prewarm.accept, listener), folder)
        else:
            continue_without_owner()
            serve(lambda: socket.socket(fileno=os.dup(0)), folder)


if __name__ == "__main__":
    main()
