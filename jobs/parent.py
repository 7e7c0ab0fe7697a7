"""A slot's long-lived process: preloaded once, it makes one child per trial and enforces each child's deadline.

It reads one JSON request a line and answers each with one JSON line. Closing its input ends it and its child.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import json
import mmap
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

from jobs import environment, failures, nvml, trial, waiting
from jobs.preload import preload, remember_processor, unclean
from jobs.prepare import remove_abandoned_locks
from jobs.record import Outcome, TrialRecord, record_from_json, record_to_json
from jobs.scratch import own_folder
from jobs.spec import TrialSpec, spec_from_json, to_json

_PHASE_BYTES = 64
_LOG_TAIL = 16_000
_RELEASE_SECONDS = 10.0
_DRIVER_BYTES = 16 * 2**20
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def serve(channels: Callable[[], tuple[int, int]], folder: Path) -> None:
    """Preload, say so, then run the trials asked for until requests end.

    ``channels`` gives descriptors of requests and replies; not before it returns is the GPU this process's to touch.
    """
    seconds = preload()
    requests, answers = channels()
    replies = os.fdopen(answers, "w")
    reason = unclean()
    # From here on nothing this process holds can become garbage: children share its pages unwritten.
    import gc

    gc.collect()
    gc.freeze()
    _reply(replies, {"preload_seconds": seconds, "unclean": reason, "environment": environment.describe()})
    for line in os.fdopen(requests, "r", closefd=False):
        request = json.loads(line)
        spec = spec_from_json(request["spec"])
        isolation = "fresh" if reason else spec.measure.isolation
        if isolation == "fork" and spec.recipe.deepspeed is not None:
            remember_processor()
        record = run_child(spec, request["deadline_seconds"], isolation, folder, (requests, answers))
        if spec.recipe.deepspeed is not None and record.outcome is not Outcome.OK:
            remove_abandoned_locks(begun_since=record.started_at)
        if reason:
            record = dataclasses.replace(record, measurements={**record.measurements, "isolation_fallback": reason})
        _reply(replies, record_to_json(record))


def run_child(
    spec: TrialSpec, deadline_seconds: float, isolation: str, folder: Path, channels: tuple[int, int]
) -> TrialRecord:
    """One trial in a child of its own process group; whatever it does, the group is gone afterwards.

    ``channels`` are the descriptors of requests and replies, which are none of the child's business.
    """
    result, log = folder / "result.json", folder / "log.txt"
    _clear(folder)
    log.write_text("")
    with _phase_file(folder / "phase") as phase:
        started, begin, kills = time.time(), time.monotonic(), _host_oom_kills()
        used_before = _device_bytes()
        pid = _fork(spec, folder, phase, channels) if isolation == "fork" else _spawn(spec, folder)
        in_time = _wait(pid, deadline_seconds, channels[0])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        _await_release(used_before)
        wall = time.monotonic() - begin
        where = bytes(phase).split(b"\0", 1)[0].decode()
    tail = log.read_text(errors="replace")[-_LOG_TAIL:]
    if in_time and result.exists():
        record = record_from_json(json.loads(result.read_text()))
        return dataclasses.replace(record, started_at=started, wall_seconds=wall, log=tail)
    if in_time:
        outcome, reason = failures.classify_exit(status, host_oom_kills=_host_oom_kills() - kills)
    else:
        outcome, reason = Outcome.TIMED_OUT, f"no result after {deadline_seconds:g} s, in phase {where or 'start'}"
    silent = TrialRecord(spec=spec, outcome=outcome, reason=reason, phase=where, isolation=isolation, log=tail)
    return dataclasses.replace(
        silent,
        environment=environment.describe(),
        measurements=trial.placement(spec),
        started_at=started,
        wall_seconds=wall,
    )


def _clear(folder: Path) -> None:
    """Remove what the last trial left; one that was killed leaves its scratch, and offloaded states fill a disk."""
    (folder / "result.json").unlink(missing_ok=True)
    for left in folder.glob(f"{trial.SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)


def run_here(spec: TrialSpec, result: Path, phase: mmap.mmap | None, isolation: str) -> None:
    """Run a trial in this very process and leave its record in ``result``."""

    def announce(name: str) -> None:
        if phase is not None:
            phase[:] = name.encode()[:_PHASE_BYTES].ljust(_PHASE_BYTES, b"\0")

    record = trial.run(spec, announce, isolation=isolation, scratch=result.parent)
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(record_to_json(record)))
    partial.replace(result)


def open_phase(path: Path) -> mmap.mmap:
    """The shared page in which a child says where it is; it outlives the child."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), _PHASE_BYTES)


@contextlib.contextmanager
def _phase_file(path: Path) -> Any:
    path.write_bytes(bytes(_PHASE_BYTES))
    with open_phase(path) as phase:
        yield phase


def _fork(spec: TrialSpec, folder: Path, phase: mmap.mmap, channels: tuple[int, int]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _end_with(parent)
        for channel in channels:  # or whoever waits for an answer would not see this process's parent die
            os.close(channel)
        _child(spec, folder, phase)
    with contextlib.suppress(PermissionError, ProcessLookupError):  # whoever is first; the other finds it done
        os.setpgid(pid, pid)
    return pid


def _end_with(parent: int) -> None:
    """Let the kernel end this process when its parent goes, however it goes: no orphan may hold the GPU."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the kernel was asked
        os._exit(1)


def _child(spec: TrialSpec, folder: Path, phase: mmap.mmap) -> NoReturn:
    status = 1
    try:
        with contextlib.suppress(PermissionError):
            os.setpgid(0, 0)
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        run_here(spec, folder / "result.json", phase, "fork")
        status = 0
    except BaseException as error:
        import traceback

        traceback.print_exception(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # No interpreter shutdown: the kernel frees the GPU faster than the libraries' exit handlers would.
        os._exit(status)


def _spawn(spec: TrialSpec, folder: Path) -> int:
    (folder / "spec.json").write_text(json.dumps(to_json(spec)))
    command = [sys.executable, "-m", "jobs", str(folder / "spec.json"), "--result", str(folder / "result.json")]
    with open(folder / "log.txt", "w") as log:
        process = subprocess.Popen(
            [*command, "--phase", str(folder / "phase")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=functools.partial(_end_with, os.getpid()),
        )
    return process.pid


def _wait(pid: int, deadline_seconds: float, requests: int) -> bool:
    """Whether the child ended before its deadline. Ends this process when whoever asked has gone."""
    end = time.monotonic() + deadline_seconds
    child = os.pidfd_open(pid)
    try:
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([child, requests], [], [], left)
            if child in ready:
                return True
            if requests in ready:  # a request is never sent while one runs: this is the end of the line
                os.killpg(pid, signal.SIGKILL)
                sys.exit(0)
        return False
    finally:
        os.close(child)


def _device_bytes() -> int:
    """Memory in use on this slot's GPU; 0 without one."""
    with nvml.session():  # or both questions would initialise it, while the next trial waits
        uuids = nvml.visible_uuids()
        return nvml.used_bytes(uuids[0]) if uuids else 0


def _await_release(used_before: int) -> None:
    """The driver takes a moment to free a dead process's memory; the next trial must not find it."""
    give_up = time.monotonic() + _RELEASE_SECONDS
    while _device_bytes() > used_before + _DRIVER_BYTES and time.monotonic() < give_up:
        time.sleep(0.02)


def _host_oom_kills() -> int:
    """How often this kernel's out-of-memory killer has struck since boot."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _reply(replies: TextIO, message: Any) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def main() -> None:
    """Entry point of ``python -m jobs.parent``: requests on stdin, replies on what was stdout.

    ``--door DESCRIPTOR PID`` waits at a listening socket to be taken over, and ends with the process that started it.
    """
    channels = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # a library that prints while being imported must not garble the replies
    with own_folder("orchestrator-slot-") as folder:
        if sys.argv[1:2] == ["--door"]:
            _end_with(int(sys.argv[3]))
            serve(functools.partial(waiting.taken, int(sys.argv[2])), folder)
        else:
            serve(lambda: channels, folder)


if __name__ == "__main__":
    main()
