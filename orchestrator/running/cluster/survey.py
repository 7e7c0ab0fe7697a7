"""Describes the nodes of a cluster: their GPUs, cores, memory and environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import ray

from jobs.node import environment
from orchestrator.running.cluster.ray_nodes import RayNode, answer_of, list_nodes, on_node
from orchestrator.running.nodes import NODE_SECONDS, ClusterError, Node


def survey() -> tuple[Node, ...]:
    """Every live node with a core, described by a task on it.

    Raises ClusterError if there is no such node.
    """
    # All nodes are asked at once, because a cold node takes seconds to answer.
    nodes = _live_nodes()
    references = [on_node(node.node_id, node.gpus)(environment.of_node).remote() for node in nodes]
    ray.wait(references, num_returns=len(references), timeout=NODE_SECONDS)
    described = []
    for node, reference in zip(nodes, references, strict=True):
        answer = answer_of(reference)
        # A node that lost its network a moment ago is still listed as alive.
        if not isinstance(answer, ray.exceptions.RayError):
            described.append(_described(node, *answer))
    if not described:
        raise ClusterError(
            "no node of the Ray cluster has a core to run trials on, or none answers"
        )
    return tuple(described)


def this_machine() -> tuple[Node, ...]:
    """The only node of a Ray that was started here. A task on it would take seconds to start.

    Raises ClusterError if Ray gives the node no core.
    """
    nodes = tuple(_described(node, *environment.of_node()) for node in _live_nodes())
    if not nodes:
        raise ClusterError("Ray was started here without a core to run trials on")
    return nodes


def _live_nodes() -> list[Node]:
    """The nodes that are alive and have a core."""
    nodes = []
    for raw in list_nodes():
        if raw["Alive"] and raw["Resources"].get("CPU"):
            nodes.append(_node(raw))
    return nodes


def _described(node: Node, node_environment: Mapping[str, Any], cores: int) -> Node:
    """The node with what the task on it has found."""
    # Ray may have been started with more cores than the process may use.
    cpus = min(node.cpus, cores)
    return dataclasses.replace(node, environment=node_environment, cpus=cpus)


def _node(raw: RayNode) -> Node:
    """A node as Ray describes it. Its environment is filled in later."""
    resources = raw["Resources"]
    return Node(
        node_id=raw["NodeID"],
        address=raw["NodeManagerAddress"],
        gpus=int(resources.get("GPU", 0)),
        cpus=int(resources["CPU"]),
        host_bytes=int(0.9 * resources.get("memory", 0)),
        environment={},
    )
