"""The nodes of a cluster during a sweep: they join and leave, and without any the sweep ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ray import tune

from jobs.spec import Needs
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.cluster.messages import UNFIT
from orchestrator.running.cluster.ray_nodes import NodeInquiries, RayNode, list_nodes
from orchestrator.running.cluster.searcher import Unpickled
from orchestrator.running.cluster.slots import Slots
from orchestrator.running.cluster.unfit_gpus import UnfitGpus
from orchestrator.running.nodes import Cluster, Placement
from orchestrator.running.session import Session

LOOK_SECONDS = 2.0
"""Between two looks at the cluster."""
NO_NODE_SECONDS = 600.0
"""How long to wait for a node if none is left: what a cloud needs to replace one."""


class Inquiries(Protocol):
    """What is used of ``NodeInquiries``."""

    def ask(self, node_id: str, gpus: int) -> None: ...

    def answers(self) -> dict[str, str]: ...


class Membership(Unpickled, tune.Callback, tune.Stopper):
    """Looks at the cluster every few seconds, and takes the reports about unfit GPUs.

    Nodes that join are used if their GPU model is known. Where trials are kept on certain nodes, a
    node that joins is asked for its model first. Elsewhere Ray places trials on it at once, and its
    actor reports an unknown model as an unfit GPU.
    """

    def __init__(
        self,
        session: Session,
        cluster: Cluster,
        asked: Needs | None = None,
        *,
        nodes: Callable[[], Sequence[RayNode]] = list_nodes,
        inquiries: Inquiries | None = None,
        clock: Callable[[], float] = time.monotonic,
        no_node_seconds: float = NO_NODE_SECONDS,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._nodes = nodes
        if inquiries is None:
            inquiries = NodeInquiries()
        self._inquiries = inquiries
        self._clock = clock
        self._no_node_seconds = no_node_seconds
        self.slots = Slots(cluster, asked or Needs())
        self.on_slots: Callable[[Mapping[str, int]], object] = _ignore
        """Called with the slots of each GPU model when they have been counted again."""
        self._unfit = UnfitGpus(session.message, [node.node_id for node in cluster.nodes])
        self._known_nodes: set[str] | None = None
        """Nodes that need not be asked for their GPU model: those of the first look are not new."""
        self.given_up = ""
        """Why the sweep ends at once; empty while it goes on."""
        self._next_look = 0.0
        self._empty_since: float | None = None

    @property
    def placements(self) -> Mapping[str, Placement]:
        """GPU model of a trial ("" for any) -> where it may run by now."""
        return self.slots.placements

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about GPUs that turned out to be unfit."""
        return self._unfit.notes

    @property
    def trials_at_once(self) -> int:
        """Tune trials that may live: one per slot, some of which keep unfit GPUs, and for each GPU
        model one that waits, so that no slot waits for the driver."""
        return self.slots.total + len(self.placements)

    def may_share(self, gpu_model: str) -> bool:
        """Whether a trial for this model is measured although other processes use its GPU: there is
        no other GPU for it."""
        hardware = self.placements[gpu_model].hardware
        return self._unfit.is_measured_shared(hardware) or self.slots.of(gpu_model) <= 1

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Look at the cluster, every few seconds."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        self._session.check_folder()
        alive = {node["NodeID"]: node for node in self._nodes() if node["Alive"]}
        self._meet_new_nodes(alive)
        self._count_slots(alive)
        self._watch_emptiness(now)

    def stop_all(self) -> bool:
        """Whether to end now: no node joined in time, or no record can be written any more."""
        if self._session.is_futile or self.given_up:
            return True
        if self._empty_since is None:
            return False
        if self._clock() <= self._empty_since + self._no_node_seconds:
            return False
        self._session.close(CloseReason.NO_NODES)
        return True

    def give_up(self, reason: str) -> None:
        """End the sweep at the next look."""
        self.given_up = reason

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether Tune shall stop a trial: only one that keeps an unfit GPU is ever stopped."""
        gpu = result.get(UNFIT)
        if gpu is None:
            return False
        # An unfit GPU is kept by its Tune trial until the GPU is fit or the sweep ends.
        slots = self.slots.of(self.slots.model_of(gpu.planned_model))
        gives_back = self._unfit.report(trial_id, gpu, slots=slots)
        return bool(gpu.reason) and (gives_back or self._session.finished)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The actor keeps no unfit GPU any more."""
        self._unfit.forget(trial.trial_id)

    on_trial_error = on_trial_complete

    def _meet_new_nodes(self, alive: Mapping[str, RayNode]) -> None:
        """Learn the GPU models of nodes that have joined, and use those that are known."""
        if self.slots.has_gpus and not self.slots.is_pinned:
            return  # their actors find out
        if self._known_nodes is None:
            self._known_nodes = set(alive)
        # A node is asked once. Its answer comes at a later look.
        for node_id, node in alive.items():
            gpus = int(node["Resources"].get("GPU", 0))
            if gpus and node_id not in self._known_nodes:
                self._known_nodes.add(node_id)
                self._inquiries.ask(node_id, gpus)
        for node_id, hardware in self._inquiries.answers().items():
            is_used = self.slots.use(node_id, hardware)
            if not is_used and hardware and self._cluster.is_new_model(hardware):
                self._unfit.announce_model(hardware)

    def _count_slots(self, alive: Mapping[str, RayNode]) -> None:
        changes = self.slots.update(alive)
        if changes.lost:
            self._session.message(f"lost {changes.lost} of {changes.before} nodes")
        for node in changes.joined:
            self._session.message(f"a node joined: {node['NodeManagerAddress']}")
        self.on_slots(self.slots.by_model())

    def _watch_emptiness(self, now: float) -> None:
        """Note since when no fit GPU has been there for the trials that wait for one."""
        # Only models that trials wait for count: an idle model may be gone.
        waiting = self._session.gpu_models_given_out
        if not waiting or any(self._has_fit_slot(model) for model in waiting):
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
            minutes = self._no_node_seconds / 60
            self._session.message(
                f"no GPU is left: waiting for one to join, at most {minutes:g} minutes"
            )

    def _has_fit_slot(self, gpu_model: str) -> bool:
        unfit = self._unfit.count(self.placements[gpu_model].hardware)
        return self.slots.of(gpu_model) > unfit


def _ignore(slots: Mapping[str, int]) -> None:
    """Nothing asks for the slots."""
