"""A Ray cluster for the time of a sweep: joined or started here, and its nodes described."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from jobs.node import environment
from jobs.node.process_variables import process_variables
from orchestrator.running.cluster.head_watchdog import watched_head
from orchestrator.running.cluster.ray_nodes import RayNode, list_nodes, on_node
from orchestrator.running.nodes import Cluster, ClusterError, Node
from orchestrator.running.ray_address import advice, ray_address, why_unreachable

_RAYS_OWN_SHARE = 0.1
"""Of the memory that Ray gives out on a node; left to Ray itself."""


@contextmanager
def connected(address: str | None) -> Iterator[Cluster]:
    """The Ray cluster at ``address`` or ``RAY_ADDRESS``, or one started here.

    Raises ClusterError if it cannot be joined, for example because it runs another Ray version.
    """
    started_here = not ray.is_initialized()
    if started_here:
        _join(ray_address(address))
    try:
        with watched_head():
            yield Cluster(nodes=_survey())
    finally:
        if started_here:
            ray.shutdown()


def _join(address: str) -> None:
    reason = why_unreachable(address)
    if reason:
        raise ClusterError(f"cannot join the Ray cluster: {reason}")
    try:
        ray.init(
            address=address,
            include_dashboard=False if address == "local" else None,
            logging_level=logging.ERROR,
            log_to_driver=False,
            configure_logging=True,
        )
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        refusal = " ".join(str(error).split())
        sentence = f"cannot join the Ray cluster at {address}: {refusal}"
        if address != "local":
            sentence += f"; {advice(refusal)}"
        raise ClusterError(sentence) from error


def ask_nodes(
    address: str, question: Callable[[], Any], timeout_seconds: float
) -> list[tuple[str, Any]]:
    """(address, answer or RayError) of every live node; takes no GPU, so a busy cluster answers.

    Raises ConnectionError, RuntimeError or ValueError if the cluster cannot be joined.
    """
    try:
        context = ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except ray.exceptions.AuthenticationError as error:
        raise ConnectionError(str(error)) from None
    with context:
        alive = [node for node in list_nodes() if node["Alive"]]
        references = [on_node(node["NodeID"], gpus=0)(_call).remote(question) for node in alive]
        ray.wait(references, num_returns=len(references), timeout=timeout_seconds)
        addresses = [node["NodeManagerAddress"] for node in alive]
        answers = [_answer(reference) for reference in references]
        return list(zip(addresses, answers, strict=True))


def prepare(cluster: Cluster, ops: Sequence[str]) -> dict[str, Any]:
    """Build DeepSpeed ops on every node that runs trials.

    Returns node address -> op -> seconds, or why the op cannot be built.
    """
    if not ops:
        return {}
    nodes = cluster.trial_nodes
    references = [on_node(node.node_id, node.gpus)(_build).remote(list(ops)) for node in nodes]
    addresses = [node.address for node in nodes]
    return dict(zip(addresses, ray.get(references), strict=True))


def _survey() -> tuple[Node, ...]:
    """Every live node with a core, described from inside. Raises ClusterError if there is none."""
    nodes = [_node(raw) for raw in list_nodes() if raw["Alive"] and raw["Resources"].get("CPU")]
    references = [on_node(node.node_id, node.gpus)(environment.of_node).remote() for node in nodes]
    ray.wait(references, num_returns=len(references))
    described = []
    for node, reference in zip(nodes, references, strict=True):
        answer = _answer(reference)
        # One that was cut off a moment ago is still listed as alive.
        if not isinstance(answer, ray.exceptions.RayError):
            own_environment, cores = answer
            cpus = min(node.cpus, cores)
            described.append(dataclasses.replace(node, environment=own_environment, cpus=cpus))
    if not described:
        raise ClusterError(
            "no node of the Ray cluster has a core to run trials on, or none answers"
        )
    return tuple(described)


def _node(raw: RayNode) -> Node:
    """What Ray says of a node; its environment is not known yet."""
    resources = raw["Resources"]
    return Node(
        node_id=raw["NodeID"],
        address=raw["NodeManagerAddress"],
        gpus=int(resources.get("GPU", 0)),
        cpus=int(resources["CPU"]),
        host_bytes=int((1 - _RAYS_OWN_SHARE) * resources.get("memory", 0)),
        environment={},
    )


def _answer(reference: Any) -> Any:
    """A task's result, or the RayError why there is none."""
    try:
        return ray.get(reference, timeout=0)
    except ray.exceptions.RayError as error:
        return error


def _call(question: Callable[[], Any]) -> Any:
    return question()


def _build(ops: list[str]) -> Any:
    """Runs on a node: op -> seconds, or the exit status of the build."""
    command = [sys.executable, "-m", "jobs.isolation.build_ops", *ops]
    variables = {**os.environ, **process_variables(environment.cores())}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=variables)
    return json.loads(done.stdout) if done.returncode == 0 else {"failed": done.returncode}
