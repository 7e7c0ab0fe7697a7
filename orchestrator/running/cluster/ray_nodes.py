"""Ray's nodes: lists them, runs functions on them, and asks new ones for their GPU model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs.node import environment

RayNode = dict[str, Any]
"""A node as ``ray.nodes`` has it."""


def list_nodes() -> Sequence[RayNode]:
    """Every node that Ray knows of, lost ones included."""
    nodes: Sequence[RayNode] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def on_node(node_id: str, gpus: int) -> Any:
    """A decorator for functions that run on one node. They see one GPU if ``gpus`` is above 0."""
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    options: dict[str, Any] = {"num_cpus": 0, "num_gpus": min(gpus, 1)}
    options["scheduling_strategy"] = strategy
    return functools.partial(_OnNode, options)


class _OnNode:
    """A function whose method ``remote`` runs it on the node."""

    def __init__(self, options: Mapping[str, Any], function: Callable[..., Any]) -> None:
        self._options = options
        self._function = function

    def remote(self, *arguments: Any) -> Any:
        """Ray's reference of the answer."""
        return ray.remote(**self._options)(_call).remote(self._function, *arguments)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a function on the node.

    The function is called through this module, so that the worker imports ``orchestrator`` first.
    That import makes sure that ``jobs`` is our package, and not a folder of the same name where the
    sweep was started.
    """
    return function(*arguments)


def answer_of(reference: Any) -> Any:
    """The result of a task, or the RayError that took its place."""
    try:
        return ray.get(reference, timeout=0)
    except ray.exceptions.RayError as error:
        return error


class NodeInquiries:
    """Asks nodes that joined for their GPU model. No trial runs there yet, so a GPU is free."""

    def __init__(self) -> None:
        self._questions: dict[Any, str] = {}
        """Ray's reference of the answer -> node id."""

    def ask(self, node_id: str, gpus: int) -> None:
        """Start to ask a node. ``answers`` returns the answer later."""
        reference = on_node(node_id, gpus)(environment.of_node).remote()
        self._questions[reference] = node_id

    def answers(self) -> dict[str, str]:
        """Node id -> GPU model, of the nodes that have answered; "" if the node was lost again."""
        if not self._questions:
            return {}
        references = list(self._questions)
        ready, _ = ray.wait(references, num_returns=len(references), timeout=0)
        models = {}
        for reference in ready:
            node_id = self._questions.pop(reference)
            models[node_id] = _gpu_model(reference)
        return models


def _gpu_model(reference: Any) -> str:
    try:
        described, _ = ray.get(reference)
    except ray.exceptions.RayError:
        return ""
    return str(described.get("gpu_model") or "")
