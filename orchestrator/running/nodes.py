"""What a cluster has: its nodes, what a trial may reserve of them, and which of them are alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.spec import Needs


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One machine of the cluster: its GPUs, the cores each of its trials gets, and its environment."""

    node_id: str
    address: str
    gpus: int
    cpus: int
    host_bytes: int
    """Memory that Ray gives out on the node, less a tenth for Ray itself."""
    environment: Mapping[str, Any]
    resources: Mapping[str, float] = field(default_factory=dict)
    """What Ray gives out on the node: its GPU's model, its address, and whatever it was started with."""

    @property
    def hardware(self) -> str:
        """The model of its GPUs; of its processor where it has none."""
        return str(self.environment.get("gpu_model") or self.environment.get("cpu_model"))


class IndistinctNodesError(RuntimeError):
    """Nodes with unlike GPUs, and no resource by which Ray could tell them apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """What a sweep can use."""

    nodes: tuple[Node, ...]
    mark: str = ""
    """A resource that only these nodes have, where Ray has others too: it keeps trials on them."""

    @property
    def hardware(self) -> str:
        """The models of its GPUs, or processors."""
        return ", ".join(sorted({node.hardware for node in self.nodes}))

    def by_hardware(self) -> tuple[Cluster, ...]:
        """A cluster for each model of GPU; the whole where there is one model, or no GPU at all.

        Raises IndistinctNodesError when Ray cannot tell the models apart.
        """
        groups: dict[str, list[Node]] = {}
        for node in self.nodes:
            if node.gpus:
                groups.setdefault(node.hardware, []).append(node)
        if len(groups) < 2:
            return (self,)
        return tuple(Cluster(nodes=tuple(groups[model]), mark=_mark(groups, model)) for model in sorted(groups))

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def slots(self) -> int:
        """Trials that can run at once: one per GPU; without any, one per node."""
        return self.gpus or len(self.nodes)

    def needs(self, asked: Needs) -> Needs:
        """What every trial reserves: one GPU and, unless asked otherwise, its share of the node's cores and memory.

        The share is the smallest of any node, so that a trial fits everywhere; without GPUs it is the whole node.
        """
        hosts = [node for node in self.nodes if node.gpus or not self.gpus]
        return dataclasses.replace(
            asked,
            gpus=1 if self.gpus else 0,
            cpus=asked.cpus or max(1, min(node.cpus // max(node.gpus, 1) for node in hosts)),
            host_bytes=asked.host_bytes or min(node.host_bytes // max(node.gpus, 1) for node in hosts),
        )


def _mark(groups: Mapping[str, Sequence[Node]], model: str) -> str:
    others = {name for other, nodes in groups.items() if other != model for node in nodes for name in node.resources}
    own = set.intersection(*(set(node.resources) for node in groups[model])) - others
    if not own:
        raise IndistinctNodesError(
            f"Ray has no resource that every node with {model} has and no other; start those nodes with one of their "
            f"own: ray start --resources '{{\"{model}\": 1}}'"
        )
    # Ray's own word for a GPU's model reads best where it tells them apart.
    return min(own, key=lambda name: (not name.startswith("accelerator_type:"), name))
