"""Ray: what the cluster has, and one slot per GPU under Tune.

slot_actor.py  the actor that keeps a GPU's slot
searcher.py    trials from the session to Tune
bookkeeper.py  records from Tune to the session
queue.py       which waiting trial takes a slot that is left
head.py        the head, which may be lost
roster.py      nodes that join and leave meanwhile
not_kept.py    what Tune is not to write down
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Tune reads these when it is imported: its own per-trial files and signal handling are not wanted.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "inf")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# A local Ray's workers, else of nearly the lowest priority, which trials would inherit.
os.environ.setdefault("RAY_worker_niceness", "0")

import ray
from ray import tune
from ray.tune.search import ConcurrencyLimiter
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from threadpoolctl import threadpool_limits

from jobs.isolation import preload
from jobs.node import environment
from jobs.spec import Needs
from orchestrator.running.cluster.head_watchdog import watched_head
from orchestrator.running.cluster.membership import Roster
from orchestrator.running.cluster.scheduler import Queue
from orchestrator.running.cluster.searcher import SessionSearcher
from orchestrator.running.cluster.slot_actor import SlotTrainable
from orchestrator.running.cluster.tune_callback import Bookkeeper
from orchestrator.running.nodes import Cluster, ClusterError, Node, Place
from orchestrator.running.ray_address import to_mend, unreachable, whereabouts
from orchestrator.running.session import Session

# Tune prints a traceback for every actor that dies; the session says it in a line, and the row has the reason.
logging.getLogger("ray.tune").setLevel(logging.CRITICAL)


@contextmanager
def connected(address: str | None) -> Iterator[Cluster]:
    """A Ray cluster for the time of a sweep: the one at ``address`` or ``RAY_ADDRESS``, or one started here.

    Raises ClusterError where it cannot be joined, for example because it runs another Ray.
    """
    started_here = not ray.is_initialized()
    if started_here:
        _join(address)
    try:
        with watched_head():
            yield Cluster(nodes=_survey())
    finally:
        if started_here:
            ray.shutdown()


def _join(address: str | None) -> None:
    where = whereabouts(address)
    if reason := unreachable(where):
        raise ClusterError(f"cannot join the Ray cluster: {reason}")
    try:
        ray.init(
            address=where,
            include_dashboard=False if where == "local" else None,
            logging_level=logging.ERROR,
            log_to_driver=False,
            configure_logging=True,
        )
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        refusal = " ".join(str(error).split())
        mend = "" if where == "local" else f"; {to_mend(refusal)}"
        raise ClusterError(f"cannot join the Ray cluster at {where}: {refusal}{mend}") from error


def ask_nodes(address: str, question: Callable[[], Any], seconds: float) -> list[tuple[str, Any]]:
    """(address, answer or RayError) of every live node; takes no GPU, so a busy cluster answers too.

    Raises ConnectionError, RuntimeError or ValueError where the cluster cannot be joined.
    """
    try:
        context = ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except ray.exceptions.AuthenticationError as error:
        raise ConnectionError(str(error)) from None
    with context:
        alive = [node for node in _nodes() if node["Alive"]]
        pending = [_on(node["NodeID"], gpus=0)(_call).remote(question) for node in alive]
        ray.wait(pending, num_returns=len(pending), timeout=seconds)
        return [
            (node["NodeManagerAddress"], _answer(ref))
            for node, ref in zip(alive, pending, strict=True)
        ]


def _call(question: Callable[[], Any]) -> Any:
    return question()


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference, timeout=0)
    except ray.exceptions.RayError as error:
        return error


def prepare(cluster: Cluster, ops: Sequence[str]) -> dict[str, Any]:
    """Pay one-time costs on every node that will run trials: node -> op -> seconds, or why it cannot be built."""
    if not ops:
        return {}
    nodes = [node for node in cluster.nodes if node.gpus or not cluster.gpus]
    pending = [_on(node.node_id, node.gpus)(_prepare).remote(list(ops)) for node in nodes]
    return {node.address: costs for node, costs in zip(nodes, ray.get(pending), strict=True)}


def run(
    session: Session,
    cluster: Cluster,
    asked: Needs | None = None,
    told: Sequence[tune.Callback] = (),
) -> Roster:
    """Run the session's trials on every slot until its search is exhausted, its budget spent or it is interrupted.

    ``asked`` is what the configuration wants a trial to reserve; zeros in it mean a GPU's share of its node. A trial
    for one model of GPU runs on that model's nodes. ``told`` hear of every trial. Returns what is known of
    the nodes that were there meanwhile.
    """
    places = {part.hardware: part.place(asked or Needs()) for part in cluster.by_hardware()}
    anywhere = cluster.place(asked or Needs())
    reserved = {model: _reserve(place) for model, place in {**places, "": anywhere}.items()}
    # One more than there are slots is pending at any time, so that no slot waits for the driver.
    roster = Roster(session, cluster)
    searcher = ConcurrencyLimiter(
        SessionSearcher(session, roster, places, anywhere), cluster.slots + len(places)
    )
    roster.limit = searcher.set_max_concurrency
    with (
        tempfile.TemporaryDirectory(prefix="tune-") as storage,
        _interruptible(session),
        threadpool_limits(
            1
        ),  # what a search computes on more, trials beside it lack: they run on this host, too
    ):
        tuner = tune.Tuner(
            tune.with_resources(
                SlotTrainable, lambda config: _as_one(reserved[config["gpu_model"]])
            ),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=Queue(lambda: roster.slots),
                num_samples=-1,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=storage,
                verbose=0,
                callbacks=[*told, Bookkeeper(session, cluster), roster],
                stop=roster,
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_at_end=False, checkpoint_frequency=0
                ),
            ),
        )
        tuner.fit()
    return roster


@functools.cache
def _as_one(reservation: tune.PlacementGroupFactory) -> tune.PlacementGroupFactory:
    """Equal reservations as one object: Tune unpickles one for every trial, and keeps it."""
    return reservation


def _reserve(place: Place) -> tune.PlacementGroupFactory:
    return tune.PlacementGroupFactory(
        [dict(place.bundle)], bundle_label_selector=place.label_selector
    )


def _survey() -> tuple[Node, ...]:
    """Every live node, described from inside."""
    alive = [node for node in _nodes() if node["Alive"] and node["Resources"].get("CPU")]
    nodes = [
        Node(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            gpus=int(node["Resources"].get("GPU", 0)),
            cpus=int(node["Resources"]["CPU"]),
            host_bytes=int(0.9 * node["Resources"].get("memory", 0)),
            environment={},
        )
        for node in alive
    ]
    pending = [_on(node.node_id, node.gpus)(environment.of_node).remote() for node in nodes]
    ray.wait(pending, num_returns=len(pending))
    described = [(node, _answer(ref)) for node, ref in zip(nodes, pending, strict=True)]
    # A node may be lost while it is asked: one that was cut off a moment ago is still among the living.
    surveyed = tuple(
        dataclasses.replace(node, environment=answer[0], cpus=min(node.cpus, answer[1]))
        for node, answer in described
        if not isinstance(answer, ray.exceptions.RayError)
    )
    if not surveyed:
        raise ClusterError(
            "no node of the Ray cluster has a core to run trials on, or none answers"
        )
    return surveyed


def _nodes() -> Any:
    return ray.nodes()  # type: ignore[no-untyped-call]


def _on(node_id: str, gpus: int) -> Any:
    """A decorator for functions to run on one node, with a GPU in sight where it has any."""
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    resources: dict[str, Any] = {
        "num_cpus": 0,
        "num_gpus": min(gpus, 1),
        "scheduling_strategy": strategy,
    }
    return ray.remote(**resources)


def _prepare(ops: list[str]) -> Any:
    command = [sys.executable, "-m", "jobs.isolation.build_ops", *ops]
    variables = {**os.environ, **preload.environment(environment.cores())}
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, env=variables
    )
    return (
        json.loads(finished.stdout) if finished.returncode == 0 else {"failed": finished.returncode}
    )


@contextmanager
def _interruptible(session: Session) -> Iterator[None]:
    """The first Ctrl-C lets running trials finish; the second gives up on them."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        session.interrupt()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        previous = signal.signal(signal.SIGINT, interrupted)
    except ValueError:  # not the main thread: a notebook or a test
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
