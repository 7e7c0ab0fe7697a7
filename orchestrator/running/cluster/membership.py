"""Follows the nodes that join and leave during a sweep, which ends without a node."""

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ray import tune

from jobs.spec import Needs
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.cluster.messages import UNHEALTHY, GpuProblem, UnhealthyGpu
from orchestrator.running.cluster.ray_nodes import ModelQueries, RayNode, list_nodes
from orchestrator.running.cluster.searcher import LOOK_SECONDS, StatelessPickle
from orchestrator.running.nodes import Cluster
from orchestrator.running.session import Session

_WHAT_HAPPENED = {
    GpuProblem.LOST: "does not answer any more and was set aside",
    GpuProblem.DEAD: "fails at every CUDA call and was set aside",
    GpuProblem.OTHER_MODEL: "is of a model that no trial is planned for",
    GpuProblem.SHARED: "is used by other processes, too: its trials go to other GPUs of its model",
}


class UnhealthyGpus:
    """The unhealthy GPUs of a sweep that began with ``first_nodes`` (ids), each kept by the Tune
    trial that found it. If all GPUs of a model are unhealthy, trials run on the shared ones."""

    def __init__(self, say: Callable[[str], object], first_nodes: Collection[str]) -> None:
        self._say = say
        self._first_nodes = frozenset(first_nodes)
        self._keepers: dict[str, str] = {}
        """Tune trial that keeps an unhealthy GPU -> the GPU model that it is planned for."""
        self.measured_shared: set[str] = set()
        """GPU models that run trials although other processes use their GPUs."""
        self._new_models: set[str] = set()
        self.notes: dict[str, None] = {}
        """Sentences for the report, each once."""

    def count(self, gpu_model: str) -> int:
        """How many GPUs of this model are unhealthy, so that no trial gets them."""
        return list(self._keepers.values()).count(gpu_model)

    def report(self, tune_trial_id: str, gpu: UnhealthyGpu, *, slots: int) -> bool:
        """Take an actor's report on one of ``slots`` GPUs. Returns whether it must give the GPU
        back."""
        if not gpu.reason:
            self._say(f"{gpu.gpu} is fit again")
            return False
        # The first report of a GPU is announced; later ones only renew it.
        model = gpu.planned_model
        if tune_trial_id not in self._keepers:
            self._keepers[tune_trial_id] = model
            self._announce(gpu)
        if gpu.problem is not GpuProblem.SHARED:
            return False
        # If no better GPU is left, trials run on the shared ones, and their rows say so.
        if model not in self.measured_shared and self.count(model) >= slots:
            self.measured_shared.add(model)
            self._note("every GPU that is left is shared: rows measured beside others say so")
        return model in self.measured_shared

    def forget(self, tune_trial_id: str) -> None:
        """The Tune trial has ended, so it keeps no GPU any more."""
        self._keepers.pop(tune_trial_id, None)

    def announce_model(self, gpu_model: str) -> None:
        """Say once that a GPU model joined for which no trial is planned."""
        if gpu_model not in self._new_models:
            self._new_models.add(gpu_model)
            self._say(
                f"a new GPU model joined ({gpu_model}): run the same command with --resume to"
                " measure on it, too"
            )

    def _announce(self, gpu: UnhealthyGpu) -> None:
        has_joined = gpu.node_id not in self._first_nodes
        if gpu.problem is GpuProblem.OTHER_MODEL and has_joined:
            self.announce_model(gpu.found_model)
        else:
            self._note(f"{gpu.gpu} {_WHAT_HAPPENED[gpu.problem]}: {gpu.reason}")

    def _note(self, sentence: str) -> None:
        self.notes[sentence] = None
        self._say(sentence)


NO_NODE_SECONDS = 600.0
"""How long to wait for a node if none is left. A cloud needs minutes to replace one."""


class Slots:
    """Follows the nodes that can run trials; ``asked`` is what a trial wants to reserve."""

    def __init__(self, cluster: Cluster, asked: Needs) -> None:
        parts = cluster.by_gpu_model()
        self.placements = {model: part.placement(asked) for model, part in parts.items()}
        """GPU model of a trial ("" for any) -> the nodes where it may run, and its reservation."""
        self.has_gpus = cluster.gpus > 0
        self._gpus_per_trial = cluster.gpus_per_trial
        self.is_pinned = cluster.pinned or len(parts) > 1
        """Whether trials are kept on certain nodes."""
        self._models: dict[str, str] = {}
        """Id of a node that may run trials -> the GPU model of its trials."""
        for name, part in parts.items():
            self._models |= {node.node_id: name for node in part.nodes}
        self._set_aside = {node.node_id: node.set_aside for node in cluster.nodes}
        self._there = {node.node_id: node.gpus or 1 for node in cluster.trial_nodes}
        """Id of each node that is present and can run trials -> its GPUs; 1 without any."""

    @property
    def total(self) -> int:
        return sum(max(0, slots) for slots in self.by_model().values())

    def by_model(self) -> dict[str, int]:
        """GPU model of a trial -> its slots, by its GPUs that are present, but for those set aside
        before the sweep. GPUs that turned out unhealthy later count."""
        slots = dict.fromkeys(self.placements, 0)
        for node_id, gpus in self._there.items():
            fit = gpus - self._set_aside.get(node_id, 0)
            slots[self._models.get(node_id, "")] += fit // self._gpus_per_trial
        return slots

    def model_of(self, hardware: str) -> str:
        """The ``gpu_model`` of trials for this hardware: "" if the sweep began with one model."""
        return hardware if hardware in self.placements else ""

    def use(self, node_id: str, hardware: str) -> bool:
        """Let trials run on a node that has joined. False if none is planned for its GPU model."""
        model = self.model_of(hardware)
        placement = self.placements.get(model)
        if not self.has_gpus or placement is None or placement.hardware != hardware:
            return False
        self._models[node_id] = model
        node_ids = (*placement.node_ids, node_id)
        self.placements[model] = dataclasses.replace(placement, node_ids=node_ids)
        return True

    def update(self, alive: Mapping[str, RayNode]) -> list[str]:
        """Count the slots of the nodes ``alive``, by id. Returns sentences about changes since."""
        # A trial needs a GPU, unless the sweep runs without any. Such a node is one slot.
        resource = "GPU" if self.has_gpus else "CPU"
        there = {
            node_id: int(node["Resources"].get("GPU", 0)) or 1
            for node_id, node in alive.items()
            if (not self.is_pinned or node_id in self._models) and node["Resources"].get(resource)
        }
        lost = self._there.keys() - there.keys()
        joined = [alive[node_id] for node_id in there.keys() - self._there.keys()]
        sentences = [f"lost {len(lost)} of {len(self._there)} nodes"] if lost else []
        self._there = there
        return sentences + [f"a node joined: {node['NodeManagerAddress']}" for node in joined]


class Membership(StatelessPickle, tune.Callback, tune.Stopper):
    """Looks at the cluster every second, and takes the reports about unhealthy GPUs. A node
    that joins is used for trials of its GPU model, for which it or its actor is asked."""

    def __init__(
        self,
        session: Session,
        cluster: Cluster,
        asked: Needs | None = None,
        *,
        nodes: Callable[[], Sequence[RayNode]] = list_nodes,
        queries: ModelQueries | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._nodes = nodes
        self._queries = queries or ModelQueries()
        self._clock = clock
        self.slots = Slots(cluster, asked or Needs())
        self.on_slots: Callable[[Mapping[str, int]], object] = lambda slots: None
        """Called with the slots of each GPU model when they have been counted again."""
        self.unhealthy = UnhealthyGpus(session.message, [node.node_id for node in cluster.nodes])
        self._known_nodes: set[str] | None = None
        """Nodes that were asked for their GPU model, and those that were there from the start."""
        self.given_up = ""
        """Why the sweep ends at once; empty while it goes on."""
        self._next_look = 0.0
        self._empty_since: float | None = None

    @property
    def trials_at_once(self) -> int:
        """How many Tune trials may exist at once: one per slot, unhealthy GPUs included, and one
        more for each GPU model, so that a free slot finds its next trial at once."""
        return self.slots.total + len(self.slots.placements)

    def may_share(self, gpu_model: str) -> bool:
        """Whether its trials run beside other processes on a GPU, because no other is left."""
        hardware = self.slots.placements[gpu_model].hardware
        return self.slots.by_model()[gpu_model] <= 1 or hardware in self.unhealthy.measured_shared

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        self._session.check_folder()
        alive = {node["NodeID"]: node for node in self._nodes() if node["Alive"]}
        self._meet_new_nodes(alive)
        for sentence in self.slots.update(alive):
            self._session.message(sentence)
        self.on_slots(self.slots.by_model())
        self._watch_emptiness(now)

    def stop_all(self) -> bool:
        """Whether to end now: no node joined in time, or no record can be written any more."""
        if self._session.is_futile or self.given_up:
            return True
        if self._empty_since is None or self._clock() <= self._empty_since + NO_NODE_SECONDS:
            return False
        self._session.close(CloseReason.NO_NODES)
        return True

    def give_up(self, reason: str) -> None:
        """End the sweep at the next look."""
        self.given_up = reason

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether Tune shall stop a trial: only one that keeps an unhealthy GPU."""
        gpu = result.get(UNHEALTHY)
        if gpu is None:
            return False
        # An unhealthy GPU is kept by its Tune trial until the GPU is fit or the sweep ends.
        slots = self.slots.by_model()[self.slots.model_of(gpu.planned_model)]
        gives_back = self.unhealthy.report(trial_id, gpu, slots=slots)
        return bool(gpu.reason) and (gives_back or self._session.finished)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The Tune trial has ended, so its actor keeps no unhealthy GPU any more."""
        self.unhealthy.forget(trial.trial_id)

    on_trial_error = on_trial_complete

    def _meet_new_nodes(self, alive: Mapping[str, RayNode]) -> None:
        if self.slots.has_gpus and not self.slots.is_pinned:
            return  # the actor on the node finds the model out
        if self._known_nodes is None:
            self._known_nodes = set(alive)
        # A node is asked once. Its answer comes at a later look.
        for node_id, node in alive.items():
            gpus = int(node["Resources"].get("GPU", 0))
            if gpus and node_id not in self._known_nodes:
                self._known_nodes.add(node_id)
                self._queries.ask(node_id, gpus)
        for node_id, hardware in self._queries.answers().items():
            is_used = self.slots.use(node_id, hardware)
            if not is_used and hardware and self._cluster.is_new_model(hardware):
                self.unhealthy.announce_model(hardware)

    def _watch_emptiness(self, now: float) -> None:
        """Note since when the waiting trials have had no fit GPU."""
        # Only the models of waiting trials count. Without such trials, a model may be absent.
        waiting = self._session.waiting_gpu_models
        slots = self.slots.by_model()
        hardware = {model: self.slots.placements[model].hardware for model in waiting}
        if not waiting or any(slots[m] > self.unhealthy.count(hardware[m]) for m in waiting):
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
            minutes = NO_NODE_SECONDS / 60
            self._session.message(
                f"no GPU is left: waiting for one to join, at most {minutes:g} minutes"
            )
