"""Screens the GPUs of a cluster: each is measured briefly, and unfit ones are set aside.

Ray decides which GPU a trial gets. To keep trials off an unfit GPU, an idle actor reserves it until
the sweep ends.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs.node import calibration
from jobs.node.checks.rates import unfit
from orchestrator.planning.config_model import Resources
from orchestrator.running.cluster import connected
from orchestrator.running.nodes import Cluster, Node

MAX_SLOWDOWN = 0.07
"""A GPU is unfit if it is slower than the median of its model by more than this share.

The speeds of healthy GPUs differ by less.
"""
BUSY_GPU_SECONDS = 60.0
"""How long to wait for a GPU's answer. A GPU without an answer counts as busy, not as unfit."""

Question = Callable[[], Mapping[str, Any]]
"""Measures the only GPU that its process sees. Returns a ``Calibration`` as plain values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Screening:
    """The cluster without its unfit GPUs, all measurements, and sentences about unfit GPUs."""

    cluster: Cluster
    calibrations: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The entry of ``run.json`` about the GPUs."""
        calibrations = [dict(answer) for answer in self.calibrations]
        return {"notes": list(self.notes), "calibrations": calibrations}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Holder:
    """An actor that reserves one GPU, and the reference of its answer."""

    node: Node
    actor: Any
    reference: Any


class _HoldingActor:
    def ask(self, question: Question) -> dict[str, Any]:
        gpu = {"gpu": str(ray.get_gpu_ids()[0])}
        try:
            return {**gpu, **question()}
        except RuntimeError as error:
            return {**gpu, "failed": str(error)}


@contextmanager
def screened_cluster(address: str | None, resources: Resources) -> Iterator[Screening]:
    """The nodes of the cluster that the configuration allows, with their unfit GPUs set aside.

    Raises ClusterError or NoSuchGpuError.
    """
    with connected(address) as whole:
        chosen = whole.only(resources.gpu_models)
        if not resources.screen_gpus:
            yield Screening(cluster=chosen)
            return
        with only_fit(chosen) as screening:
            yield screening


@contextmanager
def only_fit(
    cluster: Cluster, question: Question = calibration.calibrate_briefly
) -> Iterator[Screening]:
    """Measure the GPUs, and keep trials off the unfit ones while the context lasts.

    A GPU model with a single GPU is not measured. If all GPUs of a model are unfit, trials run on
    them all the same, with a note.
    """
    holders = _hold_all(cluster, question)
    try:
        # Every GPU is measured at the same time.
        answered = _answered(holders)
        answers = [_answer(holder) for holder in answered]
        reasons = judge(answers)
        aside = [answered[index] for index in reasons if _has_fit_equal(index, answers, reasons)]
        # All other GPUs are given back to Ray, for the trials.
        _release([holder for holder in holders if holder not in aside])
        holders = aside
        notes = []
        for index, reason in reasons.items():
            notes.append(_note(answers[index], reason, is_held=answered[index] in aside))
        yield Screening(
            cluster=_without(cluster, aside), calibrations=tuple(answers), notes=tuple(notes)
        )
    finally:
        _release(holders)


def _hold_all(cluster: Cluster, question: Question) -> list[_Holder]:
    """Reserve and ask every GPU, except one that is the only GPU of its model."""
    holders = []
    for part in cluster.by_hardware():
        if part.gpus < 2:
            continue
        for node in part.nodes:
            for _ in range(node.gpus):
                holders.append(_hold(node, question))
    return holders


def judge(answers: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Index of an unfit GPU's answer -> what is wrong with the GPU."""
    reasons = {}
    measured = []
    for index, answer in enumerate(answers):
        if "failed" in answer:
            reasons[index] = f"it could not be measured: {answer['failed']}"
        else:
            measured.append(index)
    # A GPU is slow relative to the median of its model, so GPUs that failed are left out.
    slow = unfit([answers[index] for index in measured], MAX_SLOWDOWN)
    for position, reason in slow.items():
        # ``slow`` counts measured GPUs only; ``reasons`` counts all answers.
        reasons[measured[position]] = reason
    return reasons


def _hold(node: Node, question: Question) -> _Holder:
    strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    make: Any = ray.remote(_HoldingActor)
    actor = make.options(num_cpus=0, num_gpus=1, scheduling_strategy=strategy).remote()
    return _Holder(node=node, actor=actor, reference=actor.ask.remote(question))


def _release(holders: Iterable[_Holder]) -> None:
    for holder in holders:
        ray.kill(holder.actor)


def _answered(holders: Sequence[_Holder]) -> list[_Holder]:
    """The actors whose GPU has answered in time."""
    if not holders:
        return []
    references = [holder.reference for holder in holders]
    ready, _ = ray.wait(references, num_returns=len(references), timeout=BUSY_GPU_SECONDS)
    return [holder for holder in holders if holder.reference in ready]


def _answer(holder: _Holder) -> dict[str, Any]:
    where = {"node": holder.node.address, "model": holder.node.hardware}
    return {**where, **ray.get(holder.reference)}


def _has_fit_equal(
    index: int, answers: Sequence[Mapping[str, Any]], unfit_indices: Collection[int]
) -> bool:
    """Whether some other GPU of the same model is fit."""
    model = answers[index]["model"]
    same_model = [other for other, answer in enumerate(answers) if answer["model"] == model]
    return any(other not in unfit_indices for other in same_model)


def _note(answer: Mapping[str, Any], reason: str, *, is_held: bool) -> str:
    name = f"{answer['model']} {answer.get('uuid') or answer['gpu']} on {answer['node']}"
    if is_held:
        return f"{name} was set aside: {reason}"
    return f"{name} was measured on, because no other GPU of its model is fit: {reason}"


def _without(cluster: Cluster, aside: Sequence[_Holder]) -> Cluster:
    unfit_on = Counter(holder.node.node_id for holder in aside)
    nodes = [dataclasses.replace(node, set_aside=unfit_on[node.node_id]) for node in cluster.nodes]
    return dataclasses.replace(cluster, nodes=tuple(nodes))
