"""Who is in the cluster while a sweep runs: nodes join and leave, GPUs fall ill and recover; without any it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray
from ray import tune

from orchestrator.running.cluster.not_kept import NotKept
from orchestrator.running.cluster.slot_actor import DEAD, LOST, SHARED, UNLIKE
from orchestrator.running.nodes import Cluster
from orchestrator.running.session import Session

_EVERY_SECONDS = 2.0
_PATIENCE_SECONDS = 600.0
"""For a node to join when there is none left: what a cloud needs to replace one."""
_SETTLING_SECONDS = 30.0
"""Nodes seldom come alone: so long no other may have joined before the sweep begins anew with them."""
_IN_WORDS = {
    LOST: "answers no more and was set aside",
    DEAD: "fails at every CUDA call and was set aside",
    UNLIKE: "is of a model that no trial was planned for",
    SHARED: "is somebody else's too: its trials go to others of its model",
}


class Roster(NotKept, tune.Callback, tune.Stopper):
    """Counts the slots that are there, and lets so many trials wait for one.

    An unwell GPU is kept by the Tune trial that found it so (see ``SlotTrainable``), which goes on until it is well.
    One that is merely shared is taken all the same once its model has no better.
    """

    def __init__(self, session: Session, cluster: Cluster) -> None:
        self._session = session
        self._cluster = cluster
        self.limit: Callable[[int], object] = lambda trials: None
        """Told how many trials may be given out, those that wait and those that keep an unwell GPU among them."""
        self._known = {
            node.node_id: node.gpus or 1 for node in cluster.nodes if node.gpus or not cluster.gpus
        }
        parts = cluster.by_hardware()
        self._models = {
            node.node_id: part.hardware for part in parts[1:] and parts for node in part.nodes
        }
        self._only = set(self._known) if cluster.pinned or self._models else None
        self.has_grown = False
        """Nodes with GPUs have joined since the first look, perhaps of models that nothing was planned for."""
        self._seen: set[str] | None = None
        self._grown_at = 0.0
        self._unwell: dict[str, str] = {}
        """Tune trials that keep an unwell GPU -> its model."""
        self._sharing: set[str] = set()
        self._notes: list[str] = []
        self._next = 0.0
        self._deserted_since: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about GPUs that turned out to be unwell."""
        return tuple(dict.fromkeys(self._notes))

    @property
    def slots(self) -> int:
        """Trials that can run at once on what is there."""
        return sum(max(self._slots(model), 0) for model in self._all_models())

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY_SECONDS
        nodes: Any = ray.nodes()  # type: ignore[no-untyped-call]
        self._meet(
            {node["NodeID"] for node in nodes if node["Alive"] and node["Resources"].get("GPU")},
            now,
        )
        there = {node["NodeID"]: node for node in nodes if node["Alive"] and self._is_of_use(node)}
        if lost := self._known.keys() - there:
            self._session.say(f"lost {len(lost)} of {len(self._known)} nodes")
        for name in there.keys() - self._known:
            self._session.say(f"a node joined: {there[name]['NodeManagerAddress']}")
        self._known = {
            name: int(node["Resources"].get("GPU", 0)) or 1 for name, node in there.items()
        }
        self.limit(self.slots + len(self._all_models()))
        waiting = self._session.models_out
        if not waiting or any(self._slots(model) > self._unwell_of(model) for model in waiting):
            self._deserted_since = None
        elif self._deserted_since is None:
            self._deserted_since = now
            self._session.say(
                f"no GPU is left: waiting for one to join, at most {_PATIENCE_SECONDS / 60:g} minutes"
            )

    def _meet(self, with_gpus: set[str], now: float) -> None:
        """Where trials are kept on certain nodes, others that have GPUs are of use to a sweep that begins anew."""
        self._seen = self._seen or with_gpus
        if with_gpus - self._seen:
            self._seen |= with_gpus
            self.has_grown, self._grown_at = True, now
        if self.has_grown and self._only is not None and now > self._grown_at + _SETTLING_SECONDS:
            self._session.begin_anew()

    def may_share(self, model: str) -> bool:
        """Whether trials for these GPUs are to be measured beside somebody else: there is no other to move them to."""
        return model in self._sharing or self._slots(model) <= 1

    def stop_all(self) -> bool:
        """Whether to wait no longer for a node."""
        is_over = (
            self._deserted_since is not None
            and time.monotonic() > self._deserted_since + _PATIENCE_SECONDS
        )
        if is_over:
            self._session.close("no_nodes")
        return is_over

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether a Tune trial that keeps an unwell GPU is to give it back; no other is ever stopped."""
        if "unwell" not in result:
            return False
        kind, model = result["unwell"], result["gpu_model"]
        if result["done"]:
            self._session.say(f"{result['gpu']} is well again")
            return False
        if kind == UNLIKE and self.has_grown:
            self._session.begin_anew()
        if trial_id not in self._unwell:
            self._unwell[trial_id] = model
            self._note(f"{result['gpu']} {_IN_WORDS[kind]}: {result['reason']}")
        if (
            kind == SHARED
            and model not in self._sharing
            and self._unwell_of(model) >= self._slots(model)
        ):
            self._sharing.add(model)
            self._note("no GPU is left that nobody else uses: rows measured beside others say so")
        return self._session.finished or (kind == SHARED and model in self._sharing)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._unwell.pop(trial.trial_id, None)

    on_trial_error = on_trial_complete
    """What kept the GPU is gone."""

    def _note(self, sentence: str) -> None:
        self._notes.append(sentence)
        self._session.say(sentence)

    def _all_models(self) -> set[str]:
        return set(self._models.values()) or {""}

    def _slots(self, model: str) -> int:
        """GPUs of a model on the nodes that are there, less those that were set aside before the sweep."""
        here = [name for name in self._known if self._models.get(name, "") == model]
        aside = sum(node.set_aside for node in self._cluster.nodes if node.node_id in here)
        return sum(self._known[name] for name in here) - aside

    def _unwell_of(self, model: str) -> int:
        return list(self._unwell.values()).count(model)

    def _is_of_use(self, node: dict[str, Any]) -> bool:
        """As the nodes that the sweep began on: with GPUs where those had some; these alone where trials are pinned."""
        wanted = "GPU" if self._cluster.gpus else "CPU"
        return bool(node["Resources"].get(wanted)) and (
            self._only is None or node["NodeID"] in self._only
        )
