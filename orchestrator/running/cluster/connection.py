"""A Ray cluster for the time of a sweep: joined or started here, and its nodes described."""

import contextlib
import json
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray import tune

from jobs import self_process
from jobs.node import environment
from jobs.node.processes import process_variables
from orchestrator.reporting.terminal.safe_text import VisibleStream, shortened
from orchestrator.running.cluster.ray_nodes import (
    answer_of,
    list_nodes,
    on_node,
    survey,
    this_machine,
)
from orchestrator.running.cluster.ray_watch import temporary_folder, watched_head, watched_start
from orchestrator.running.guard import Guard, guarded
from orchestrator.running.nodes import NODE_SECONDS, Cluster, ClusterError
from orchestrator.running.ray_address import (
    LOCAL,
    advice,
    is_elsewhere,
    ray_address,
    why_unreachable,
)
from orchestrator.units import duration

_TRACEBACK = "Traceback (most recent call last)"
_FRAME = '\n  File "'
"""What a traceback contains: its first line, and the beginning of a line for each call."""
_SHUTDOWN_SECONDS = 20.0
"""How long Ray may take to shut down before its processes are killed."""


@contextmanager
def connected(address: str | None) -> Iterator[Cluster]:
    """The Ray cluster at ``address`` or ``RAY_ADDRESS``, or one of here. Raises ClusterError."""
    is_joined = ray.is_initialized()
    is_own = not is_joined and not is_elsewhere(address)
    ray_here = contextlib.nullcontext() if is_joined else _ray_at(ray_address(address))
    with ray_here, watched_head(), _errors_of_ray():
        nodes = this_machine() if is_own else survey()
        yield Cluster(nodes=nodes, is_own=is_own)


@contextmanager
def _ray_at(address: str) -> Iterator[None]:
    """Join or start Ray for the time of the context. Raises ClusterError."""
    with guarded() as guard:
        if address != LOCAL:
            _join(address, guard)
            try:
                yield
            finally:
                ray.shutdown()
            return
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(_started(guard, is_last=False))
            except _LostAtStart:
                stack.enter_context(_started(guard, is_last=True))
            yield


class _LostAtStart(ClusterError):
    """Ray was lost while it started, and can be started once more."""


@contextmanager
def _started(guard: Guard, *, is_last: bool) -> Iterator[None]:
    """A Ray of this machine for the time of the context. Raises ClusterError."""
    with temporary_folder() as folder:
        try:
            with watched_start(folder, is_last=is_last) as started:
                try:
                    _join(LOCAL, guard, folder)
                except ClusterError as error:
                    if started.is_lost:
                        raise _LostAtStart(str(error)) from error
                    raise
                started.is_started = True
                yield
        finally:
            _shut_down(guard)


def _shut_down(guard: Guard) -> None:
    """End a Ray that was started here, also a stopped raylet, which never answers Ray."""
    timer = threading.Timer(_SHUTDOWN_SECONDS, guard.end_marked)
    timer.daemon = True
    timer.start()
    try:
        ray.shutdown()
    finally:
        timer.cancel()
        guard.end_marked()


@contextmanager
def _errors_of_ray() -> Iterator[None]:
    try:
        yield
    except (ray.exceptions.RayError, tune.TuneError) as error:
        raise ClusterError(
            f"the Ray cluster failed: {_one_line(error)}; the same command with --resume goes on"
        ) from error


def _one_line(error: Exception) -> str:
    text = str(error).strip()
    if _TRACEBACK in text or _FRAME in text:
        text = text.splitlines()[-1]
    return shortened(text)


def _join(address: str, guard: Guard, folder: str | None = None) -> None:
    """Join or start Ray; a Ray that starts has its session in ``folder``. Raises ClusterError."""
    if reason := why_unreachable(address):
        fix = "start Ray there, or correct the address or the firewall"
        raise ClusterError(f"cannot join the Ray cluster: {reason}; {fix}")
    # A cluster that is started for one sweep needs no dashboard. A joined cluster decides itself.
    own: dict[str, Any] = {"include_dashboard": False, "_temp_dir": folder}
    options = {"log_to_driver": False, "configure_logging": True} | (own if folder else {})
    try:
        with _limited_start(guard, address), guard.marking():
            ray.init(address=address, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray also raises bare Exception; in any case Ray is not usable
        raise ClusterError(_why_not_joined(address, error)) from error


@contextmanager
def _limited_start(guard: Guard, address: str) -> Iterator[None]:
    limit = duration(NODE_SECONDS)
    if address == LOCAL:
        late = f"Ray could not be started here: it did not start within {limit}; try again"
        ended = "Ray could not be started here: this process ended meanwhile; try again"
    else:
        late = (
            f"cannot join the Ray cluster at {address}: it did not answer within {limit}; a process"
            " of Ray on this machine may stand still"
        )
        ended = f"this process ended while it joined the Ray cluster at {address}"
    quiet = contextlib.nullcontext() if address == LOCAL else _without_words_of_ray()
    with guard.limit(NODE_SECONDS, late, ended=ended), quiet:
        yield


@contextmanager
def _without_words_of_ray() -> Iterator[None]:
    """Its C++ code warns every few seconds of what a sentence of ours says. It writes to descriptor
    2, whatever its settings; what Python prints meanwhile still arrives."""
    with (
        open(os.dup(2), "w", buffering=1, errors="plain") as ours,
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stderr(VisibleStream(ours)),
    ):
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(ours.fileno(), 2)


def _why_not_joined(address: str, error: Exception) -> str:
    refusal = _one_line(error)
    home = os.path.expanduser("~")
    if isinstance(error, OSError) and str(error.filename or "").startswith(home):
        return (
            f"Ray needs a home folder: {error.filename}: {error.strerror}; set HOME to a folder"
            " that can be written"
        )
    if address == LOCAL:
        return f"Ray could not be started here: {refusal}; try again"
    return f"cannot join the Ray cluster at {address}: {refusal}; {advice(refusal)}"


def ask_nodes(address: str, question: Callable[[], Any]) -> list[tuple[str, Any]]:
    """(address, answer or RayError) of every live node, by a task that reserves no GPU. Raises
    ClusterError if the cluster cannot be joined."""
    with _ray_at(address):
        # All nodes are asked before the first answer is awaited.
        references = {
            on_node(node["NodeID"], gpus=0)(question).remote(): node["NodeManagerAddress"]
            for node in list_nodes()
            if node["Alive"]
        }
        ray.wait(list(references), num_returns=len(references), timeout=NODE_SECONDS)
        return [(address, answer_of(reference)) for reference, address in references.items()]


def prepare(cluster: Cluster, ops: Sequence[str]) -> dict[str, Any]:
    """Build DeepSpeed ops on every node that runs trials. Returns node address -> op -> seconds of
    its build, or the reason why it cannot be built."""
    if not ops:
        return {}
    built = {
        node.address: on_node(node.node_id, node.gpus)(_build).remote(list(ops))
        for node in cluster.trial_nodes
    }
    return dict(zip(built, ray.get(list(built.values())), strict=True))


def _build(ops: list[str]) -> Any:
    """Build ops on this node. Returns op -> seconds, or the exit status of a failed build."""
    command = self_process.command("jobs.isolation.build_ops", *ops)
    variables = {**os.environ, **process_variables(environment.cores())}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=variables)
    return {"failed": done.returncode} if done.returncode else json.loads(done.stdout)
