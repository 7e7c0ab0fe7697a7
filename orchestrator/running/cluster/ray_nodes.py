"""Ray's nodes: lists and describes them, runs functions on them, and asks for their GPU model."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs.node import environment
from orchestrator.running.nodes import NODE_SECONDS, ClusterError, Node

RayNode = dict[str, Any]
"""A node as ``ray.nodes`` has it."""


def list_nodes() -> Sequence[RayNode]:
    """Every node that Ray knows of, lost ones included."""
    return list(ray.nodes())


def on_node(node_id: str, gpus: int) -> Any:
    """A decorator for functions whose method ``remote`` then runs them on one node, with one GPU if
    ``gpus`` is above 0: called through this module, so that the worker imports ``orchestrator``
    first, and with it our ``jobs``, not a folder of the same name where the sweep was started."""
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    make = ray.remote(num_cpus=0, num_gpus=min(gpus, 1), scheduling_strategy=strategy)
    task = make(_call)
    return lambda function: SimpleNamespace(remote=functools.partial(task.remote, function))


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def answer_of(reference: Any) -> Any:
    """The result of a task, or the RayError that took its place."""
    try:
        return ray.get(reference, timeout=0)
    except ray.exceptions.RayError as error:
        return error


def survey() -> tuple[Node, ...]:
    """Every live node with a core, described by a task on it. Raises ClusterError."""
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
    """The only node of a Ray started here, without a slow task on it. Raises ClusterError."""
    nodes = tuple(_described(node, *environment.of_node()) for node in _live_nodes())
    if not nodes:
        raise ClusterError("Ray was started here without a core to run trials on")
    return nodes


def _live_nodes() -> list[Node]:
    """The nodes that are alive and have a core, still without an environment."""
    return [
        Node(
            node_id=raw["NodeID"],
            address=raw["NodeManagerAddress"],
            gpus=int(raw["Resources"].get("GPU", 0)),
            cpus=int(raw["Resources"]["CPU"]),
            host_bytes=int(0.9 * raw["Resources"].get("memory", 0)),
            environment={},
        )
        for raw in list_nodes()
        if raw["Alive"] and raw["Resources"].get("CPU")
    ]


def _described(node: Node, node_environment: Mapping[str, Any], cores: int) -> Node:
    # Ray may have been started with more cores than the process may use.
    return dataclasses.replace(node, environment=node_environment, cpus=min(node.cpus, cores))


class ModelQueries:
    """Asks nodes that joined for their GPU model. No trial runs there yet, so a GPU is free."""

    def __init__(self) -> None:
        self._asked: dict[Any, str] = {}
        """Ray's reference of the answer -> node id."""

    def ask(self, node_id: str, gpus: int) -> None:
        self._asked[on_node(node_id, gpus)(environment.of_node).remote()] = node_id

    def answers(self) -> dict[str, str]:
        """Node id -> GPU model, of the nodes that have answered; "" if the node was lost again."""
        if not self._asked:
            return {}
        ready, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
        models = {}
        for reference in ready:
            answer = answer_of(reference)
            is_lost = isinstance(answer, ray.exceptions.RayError)
            model = "" if is_lost else str(answer[0].get("gpu_model") or "")
            models[self._asked.pop(reference)] = model
        return models
