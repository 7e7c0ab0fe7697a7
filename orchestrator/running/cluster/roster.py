"""Who is in the cluster while a sweep runs: nodes that join get trials, and a sweep that has no node left ends."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray import tune
from ray.tune.search import ConcurrencyLimiter
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs import nvml
from orchestrator.running.nodes import Cluster
from orchestrator.running.session import Session

_EVERY_SECONDS = 2.0
_HOLD_SECONDS = 5.0
_PATIENCE_SECONDS = 600.0
"""For a node to join when there is none left: what a cloud needs to replace one."""


class NotKept:
    """Tune writes what it is given to disk, to restore a run from; ours are resumed from their records."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Roster(NotKept, tune.Callback, tune.Stopper):
    """Counts the slots of the nodes that are there, and lets so many trials wait for one."""

    def __init__(self, session: Session, cluster: Cluster, searcher: ConcurrencyLimiter) -> None:
        self._session = session
        self._cluster = cluster
        self._searcher = searcher
        self._known = {node.node_id: node.gpus or 1 for node in cluster.nodes if node.gpus or not cluster.gpus}
        parts = cluster.by_hardware()
        self._one_pending_each = len(parts)
        self._only = set(self._known) if cluster.pinned or len(parts) > 1 else None
        self._lost_gpus: list[Any] = []
        self._next = 0.0
        self._deserted_since: float | None = None

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY_SECONDS
        nodes: Any = ray.nodes()  # type: ignore[no-untyped-call]
        there = {node["NodeID"]: node for node in nodes if node["Alive"] and self._is_of_use(node)}
        if lost := self._known.keys() - there:
            self._session.say(f"lost {len(lost)} of {len(self._known)} nodes")
        for name in there.keys() - self._known:
            self._session.say(f"a node joined: {there[name]['NodeManagerAddress']}")
        self._known = {name: int(node["Resources"].get("GPU", 0)) or 1 for name, node in there.items()}
        if self._lost_gpus:  # some may answer again
            _, self._lost_gpus = ray.wait(self._lost_gpus, num_returns=len(self._lost_gpus), timeout=0)
        aside = sum(node.set_aside for node in self._cluster.nodes if node.node_id in there)
        slots = sum(self._known.values()) - aside - len(self._lost_gpus)
        self._searcher.set_max_concurrency(max(slots, 0) + self._one_pending_each)
        if slots > 0:
            self._deserted_since = None
        elif self._deserted_since is None:
            self._deserted_since = now
            self._session.say(f"no GPU is left: waiting for a node to join, at most {_PATIENCE_SECONDS / 60:g} minutes")

    def withdraw_gpu(self, node_id: str) -> None:
        """Keep a GPU that answers no more from being given to trials: it would take one after another, and fail them.

        Ray cannot be told which GPU to leave out. A task of ours asks its node for one, the moment that the lost GPU's
        actor gives it back, and keeps it.
        """
        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": 1, "max_retries": 0, "scheduling_strategy": strategy}
        self._lost_gpus.append(ray.remote(**options)(_hold_lost_gpu).remote())

    def close(self) -> None:
        """Give back what was withdrawn."""
        for reference in self._lost_gpus:
            ray.cancel(reference, force=True)

    def stop_all(self) -> bool:
        """Whether to wait no longer for a node."""
        is_over = self._deserted_since is not None and time.monotonic() > self._deserted_since + _PATIENCE_SECONDS
        if is_over:
            self._session.close("no_nodes")
        return is_over

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """A trial is never stopped."""
        return False

    def _is_of_use(self, node: dict[str, Any]) -> bool:
        """As the nodes that the sweep began on: with GPUs where those had some; these alone where trials are pinned."""
        wanted = "GPU" if self._cluster.gpus else "CPU"
        return bool(node["Resources"].get(wanted)) and (self._only is None or node["NodeID"] in self._only)


def _hold_lost_gpu() -> None:
    """On the GPU's node: keep it until it answers."""
    while nvml.lost():
        time.sleep(_HOLD_SECONDS)
