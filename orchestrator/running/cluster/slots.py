"""The slots that a cluster has now, and the nodes on which each GPU model's trials may run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jobs.spec import Needs
from orchestrator.running.cluster.ray_nodes import RayNode
from orchestrator.running.nodes import Cluster


class Slots:
    """Follows the nodes that can run trials.

    ``asked`` is what the configuration wants a trial to reserve.
    """

    def __init__(self, cluster: Cluster, asked: Needs) -> None:
        # Each GPU model is a cluster of its own with its own reservation.
        parts = cluster.by_gpu_model()
        self.placements = {model: part.placement(asked) for model, part in parts.items()}
        """GPU model of a trial ("" for any) -> the nodes where it may run, and its reservation."""
        self.has_gpus = cluster.gpus > 0
        self.is_pinned = cluster.pinned or len(parts) > 1
        """Whether trials are kept on certain nodes."""
        self._models: dict[str, str] = {}
        """Id of a node that may run trials -> the GPU model of its trials."""
        for name, part in parts.items():
            self._models |= {node.node_id: name for node in part.nodes}
        self._set_aside = {node.node_id: node.set_aside for node in cluster.nodes}
        self._there = {node.node_id: node.gpus or 1 for node in cluster.trial_nodes}
        """Id of each node that is present and can run trials -> its slots."""

    @property
    def total(self) -> int:
        """How many trials can run at once now."""
        return sum(max(0, slots) for slots in self.by_model().values())

    def by_model(self) -> dict[str, int]:
        """GPU model of a trial -> its slots: its GPUs that are present, but for those set aside
        before the sweep. GPUs that turned out unhealthy later count."""
        slots = dict.fromkeys(self.placements, 0)
        for node_id, gpus in self._there.items():
            slots[self._models.get(node_id, "")] += gpus - self._set_aside.get(node_id, 0)
        return slots

    def model_of(self, hardware: str) -> str:
        """The ``gpu_model`` of trials for this hardware: "" if the sweep began with one model."""
        return hardware if hardware in self.placements else ""

    def use(self, node_id: str, hardware: str) -> bool:
        """Let trials run on a node that has joined.

        Returns False, and does nothing, if no trial is planned for the node's GPU model.
        """
        model = self.model_of(hardware)
        placement = self.placements.get(model)
        if not self.has_gpus or placement is None or placement.hardware != hardware:
            return False
        self._models[node_id] = model
        node_ids = (*placement.node_ids, node_id)
        self.placements[model] = dataclasses.replace(placement, node_ids=node_ids)
        return True

    def update(self, alive: Mapping[str, RayNode]) -> list[str]:
        """Count the slots again; ``alive`` maps a node's id to the node.

        Returns sentences about the nodes that were lost or joined since the last update.
        """
        # A trial needs a GPU, unless the sweep runs without any. Such a node is one slot.
        resource = "GPU" if self.has_gpus else "CPU"
        there = {}
        for node_id, node in alive.items():
            is_ours = not self.is_pinned or node_id in self._models
            if is_ours and node["Resources"].get(resource):
                there[node_id] = int(node["Resources"].get("GPU", 0)) or 1
        sentences = []
        lost = self._there.keys() - there.keys()
        if lost:
            sentences.append(f"lost {len(lost)} of {len(self._there)} nodes")
        for node_id in there.keys() - self._there.keys():
            sentences.append(f"a node joined: {alive[node_id]['NodeManagerAddress']}")
        self._there = there
        return sentences
