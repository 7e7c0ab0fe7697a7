"""Ray's nodes: lists them, runs functions on them, and asks new ones for their GPU model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs.node import environment

RayNode = dict[str, Any]
"""A node as ``ray.nodes`` has it."""


def list_nodes() -> Sequence[RayNode]:
    """Every node that Ray knows of, lost ones included."""
    nodes: Sequence[RayNode] = ray.nodes()
    return nodes


def on_node(node_id: str, gpus: int) -> Any:
    """A decorator for functions whose method ``remote`` then runs them on one node.

    They see one GPU if ``gpus`` is above 0. The function is called through this module, so that
    the worker imports ``orchestrator`` first. That import makes sure that ``jobs`` is our package,
    and not a folder of the same name where the sweep was started.
    """
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    options: dict[str, Any] = {"num_cpus": 0, "num_gpus": min(gpus, 1)}
    options["scheduling_strategy"] = strategy
    task = ray.remote(**options)(_call)
    return lambda function: SimpleNamespace(remote=functools.partial(task.remote, function))


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def answer_of(reference: Any) -> Any:
    """The result of a task, or the RayError that took its place."""
    try:
        return ray.get(reference, timeout=0)
    except ray.exceptions.RayError as error:
        return error


class ModelQueries:
    """Asks nodes that joined for their GPU model. No trial runs there yet, so a GPU is free."""

    def __init__(self) -> None:
        self._asked: dict[Any, str] = {}
        """Ray's reference of the answer -> node id."""

    def ask(self, node_id: str, gpus: int) -> None:
        """Start to ask a node. ``answers`` returns the answer later."""
        self._asked[on_node(node_id, gpus)(environment.of_node).remote()] = node_id

    def answers(self) -> dict[str, str]:
        """Node id -> GPU model, of the nodes that have answered; "" if the node was lost again."""
        models = {}
        if self._asked:
            references = list(self._asked)
            ready, _ = ray.wait(references, num_returns=len(references), timeout=0)
            for reference in ready:
                answer = answer_of(reference)
                model = ""
                if not isinstance(answer, ray.exceptions.RayError):
                    model = str(answer[0].get("gpu_model") or "")
                models[self._asked.pop(reference)] = model
        return models
