"""The nodes of a cluster, and what a trial may reserve on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.spec import Needs, TrialSpec

NODE_SECONDS = 180.0
"""How long Ray may take to start or to be joined, and a node to describe itself: one that takes
longer gets no trial."""


class ClusterError(RuntimeError):
    """The Ray cluster cannot be joined, or was lost."""


class NoSuchGpuError(RuntimeError):
    """No node has a GPU that the configuration or the run folder needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One machine of the cluster: its GPUs, cores, memory and environment."""

    node_id: str
    address: str
    gpus: int
    cpus: int
    host_bytes: int
    """Memory that Ray can reserve on the node, minus a tenth for Ray's own processes."""
    environment: Mapping[str, Any]
    set_aside: int = 0
    """How many of its GPUs are unfit and get no trial."""

    @property
    def hardware(self) -> str:
        """The model of its GPUs; of its processor if it has none."""
        return str(self.environment.get("gpu_model") or self.environment.get("cpu_model"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where a trial may run, and what it reserves there."""

    needs: Needs
    hardware: str
    """The GPU model; the processor's without a GPU."""
    node_ids: tuple[str, ...] = ()
    """Empty: any node."""

    def applied_to(self, spec: TrialSpec) -> TrialSpec:
        """The trial, with the needs that it reserves here."""
        return replace(spec, needs=replace(self.needs, nvme_path=spec.needs.nvme_path))

    @property
    def label_selector(self) -> str:
        """Its nodes as a selector of Ray's label ``ray.io/node-id``; empty: any node."""
        return f"in({','.join(self.node_ids)})" if self.node_ids else ""

    @property
    def bundle(self) -> Mapping[str, float]:
        """The reservation: Ray's name of a resource -> amount."""
        wanted = {"CPU": self.needs.cpus, "GPU": self.needs.gpus, "memory": self.needs.host_bytes}
        # Ray refuses a reservation of nothing.
        return {name: float(amount) for name, amount in wanted.items() if amount}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """What a sweep can use."""

    nodes: tuple[Node, ...]
    pinned: bool = False
    """Whether trials may run on these nodes only, because Ray has other nodes, too."""
    allowed_models: tuple[str, ...] = ()
    """Words in the names of the GPU models that the configuration allows; empty: all models."""
    is_own: bool = False
    """Whether Ray was started for this sweep: it has no other user, and no node can join."""
    known_models: frozenset[str] = frozenset()
    """The GPU models of the whole cluster, if this is a part of one."""
    gpus_per_trial: int = 1
    """GPUs of one node that a trial reserves, if there are GPUs."""

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @property
    def slots(self) -> int:
        """Trials that can run at once on the fit GPUs; without any GPU, one per node."""
        if not self.gpus:
            return len(self.nodes)
        return sum((node.gpus - node.set_aside) // self.gpus_per_trial for node in self.nodes)

    @property
    def trial_nodes(self) -> tuple[Node, ...]:
        """The nodes that run trials: those with GPUs, or all nodes if there is no GPU at all."""
        return tuple(node for node in self.nodes if node.gpus or not self.gpus)

    @property
    def environments(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(node.environment for node in self.nodes)

    @property
    def hardware(self) -> str:
        """The models of the GPUs, or processors, that trials run on."""
        return ", ".join(sorted({node.hardware for node in self.trial_nodes}))

    def by_hardware(self) -> tuple[Cluster, ...]:
        """A cluster per GPU model, kept to its nodes; the whole one if there is one model, or no
        GPU."""
        models = frozenset(node.hardware for node in self.trial_nodes)
        if not self.gpus or len(models) < 2:
            return (self,)

        def part(model: str) -> Cluster:
            nodes = tuple(node for node in self.trial_nodes if node.hardware == model)
            return replace(self, nodes=nodes, pinned=True, known_models=models)

        return tuple(map(part, sorted(models)))

    def by_gpu_model(self) -> dict[str, Cluster]:
        """``TrialSpec.gpu_model`` -> its part of the cluster. With one model the key is ""."""
        parts = self.by_hardware()
        return {part.hardware: part for part in parts} if len(parts) > 1 else {"": self}

    def hardware_by_model(self) -> dict[str, str]:
        """``TrialSpec.gpu_model`` -> name of the GPU; of the processor without a GPU."""
        return {model: part.hardware for model, part in self.by_gpu_model().items()}

    def is_new_model(self, hardware: str) -> bool:
        """Whether the configuration allows this GPU model, and the cluster has no such GPU yet."""
        is_allowed = not self.allowed_models or _is_called(hardware, self.allowed_models)
        is_known = hardware in self.known_models or any(n.hardware == hardware for n in self.nodes)
        return is_allowed and not is_known

    def slots_by_model(self) -> dict[str, int]:
        """``TrialSpec.gpu_model`` -> how many trials can run on it at once."""
        return {model: part.slots for model, part in self.by_gpu_model().items()}

    def only(self, models: Sequence[str]) -> Cluster:
        """The nodes whose GPU's name has one of these words, if any. Raises NoSuchGpuError."""
        if not models:
            return self
        # A word such as H200 is enough: drivers spell names in several ways.
        chosen = [node for node in self.nodes if node.gpus and _is_called(node.hardware, models)]
        if not chosen:
            names = " or ".join(models)
            raise NoSuchGpuError(f"no node has a GPU called {names}: there is {self.hardware}")
        return replace(self, nodes=tuple(chosen), pinned=True, allowed_models=tuple(models))

    def with_gpus_per_trial(self, count: int) -> Cluster:
        """Without the nodes that have fewer GPUs. Raises NoSuchGpuError if none has enough."""
        if not self.gpus:
            return self
        chosen = tuple(node for node in self.nodes if node.gpus >= count or not node.gpus)
        if not any(node.gpus for node in chosen):
            raise NoSuchGpuError(
                f"resources.gpus_per_trial is {count}, and no node has so many GPUs"
            )
        is_pinned = self.pinned or len(chosen) < len(self.nodes)
        return replace(self, nodes=chosen, pinned=is_pinned, gpus_per_trial=count)

    def needs(self, asked: Needs) -> Needs:
        """What every trial reserves: its GPUs, and the cores and memory in ``asked``, where a zero
        stands for the GPUs' share of the node with the smallest, so that a trial fits
        everywhere."""
        shares = [(node, max(node.gpus // self.gpus_per_trial, 1)) for node in self.trial_nodes]
        return replace(
            asked,
            gpus=self.gpus_per_trial if self.gpus else 0,
            cpus=asked.cpus or max(1, min(node.cpus // slots for node, slots in shares)),
            host_bytes=asked.host_bytes or min(node.host_bytes // slots for node, slots in shares),
        )

    def placement(self, asked: Needs) -> Placement:
        """Where a trial that asks for this may run, and what it reserves there."""
        node_ids = tuple(node.node_id for node in self.nodes if self.pinned)
        return Placement(needs=self.needs(asked), hardware=self.hardware, node_ids=node_ids)


def _is_called(hardware: str, words: Iterable[str]) -> bool:
    """Whether a name has one of these words. A10 is neither A100 nor A10G."""
    whole = (rf"(?<![^\W_]){re.escape(word)}(?![^\W_])" for word in words)
    return any(re.search(pattern, hardware, re.IGNORECASE) for pattern in whole)
