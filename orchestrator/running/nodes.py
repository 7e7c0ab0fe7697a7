"""What a cluster has: its nodes, what a trial may reserve of them, and which of them are alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.spec import Needs, TrialSpec


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
    set_aside: int = 0
    """GPUs among them that are not well, and get no trial."""

    @property
    def hardware(self) -> str:
        """The model of its GPUs; of its processor where it has none."""
        return str(self.environment.get("gpu_model") or self.environment.get("cpu_model"))


class ClusterError(RuntimeError):
    """The Ray cluster cannot be joined, or was lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What a trial reserves, and on which nodes; none named: on any."""

    needs: Needs
    node_ids: tuple[str, ...] = ()

    def given(self, spec: TrialSpec) -> TrialSpec:
        """The trial with what it reserves here."""
        return dataclasses.replace(
            spec, needs=dataclasses.replace(self.needs, nvme_path=spec.needs.nvme_path)
        )

    @property
    def label_selector(self) -> list[dict[str, str]] | None:
        """Its nodes by Ray's label of their ids; None: any."""
        return [{"ray.io/node-id": f"in({','.join(self.node_ids)})"}] if self.node_ids else None

    @property
    def bundle(self) -> Mapping[str, float]:
        """The reservation in Ray's words."""
        wanted = {"CPU": self.needs.cpus, "GPU": self.needs.gpus, "memory": self.needs.host_bytes}
        return {name: float(amount) for name, amount in wanted.items() if amount}


class NoSuchGpuError(RuntimeError):
    """The configuration names GPU models, and no node has one of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """What a sweep can use."""

    nodes: tuple[Node, ...]
    pinned: bool = False
    """Ray has other nodes too, which are none of its: trials are kept on these."""

    @property
    def hardware(self) -> str:
        """The models of its GPUs, or processors."""
        return ", ".join(sorted({node.hardware for node in self.nodes}))

    def by_hardware(self) -> tuple[Cluster, ...]:
        """A cluster for each model of GPU; the whole where there is one model, or no GPU at all."""
        groups: dict[str, list[Node]] = {}
        for node in self.nodes:
            if node.gpus:
                groups.setdefault(node.hardware, []).append(node)
        if len(groups) < 2:
            return (self,)
        return tuple(Cluster(nodes=tuple(groups[model]), pinned=True) for model in sorted(groups))

    def only(self, models: Sequence[str]) -> Cluster:
        """The nodes whose GPU's name contains one of these words; all where none is given. Raises NoSuchGpuError."""
        if not models:
            return self
        chosen = [
            n
            for n in self.nodes
            if n.gpus and any(word.lower() in n.hardware.lower() for word in models)
        ]
        if not chosen:
            raise NoSuchGpuError(
                f"no node has a GPU called {' or '.join(models)}: there is {self.hardware}"
            )
        return Cluster(nodes=tuple(chosen), pinned=True)

    def slots_by_model(self) -> dict[str, int]:
        """Model -> trials that it can run at once; where there is one kind of hardware only, it needs no name."""
        parts = self.by_hardware()
        return {part.hardware if len(parts) > 1 else "": part.slots for part in parts}

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def slots(self) -> int:
        """Trials that can run at once: one per GPU; without any, one per node."""
        return (
            self.gpus - sum(node.set_aside for node in self.nodes) if self.gpus else len(self.nodes)
        )

    def needs(self, asked: Needs) -> Needs:
        """What every trial reserves: one GPU and, unless asked otherwise, its share of the node's cores and memory.

        The share is the smallest of any node, so that a trial fits everywhere; without GPUs it is the whole node.
        """
        hosts = [node for node in self.nodes if node.gpus or not self.gpus]
        return dataclasses.replace(
            asked,
            gpus=1 if self.gpus else 0,
            cpus=asked.cpus or max(1, min(node.cpus // max(node.gpus, 1) for node in hosts)),
            host_bytes=asked.host_bytes
            or min(node.host_bytes // max(node.gpus, 1) for node in hosts),
        )

    def place(self, asked: Needs) -> Place:
        """Where a trial that asks for this may run, and what it reserves there."""
        return Place(
            needs=self.needs(asked),
            node_ids=tuple(node.node_id for node in self.nodes) if self.pinned else (),
        )
