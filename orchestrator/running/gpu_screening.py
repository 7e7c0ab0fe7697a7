"""Which GPUs of a cluster are fit: each is measured briefly, and unfit ones are set aside.

Ray hands out the GPUs. One that is to get no trial is held by an idle actor until the sweep ends.
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
from orchestrator.planning.settings import Resources
from orchestrator.running.cluster import connected
from orchestrator.running.nodes import Cluster, Node

MAX_SLOWDOWN = 0.07
"""A GPU slower than its model's median by a larger share is unfit: healthy GPUs differ less."""
BUSY_GPU_SECONDS = 60.0
"""A GPU that does not answer for longer is in use, and is not judged."""

Question = Callable[[], Mapping[str, Any]]
"""What each GPU is asked, in a process that sees no other: a ``Calibration`` as plain values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Screening:
    """The cluster without its unfit GPUs, all measurements, and sentences about the unfit."""

    cluster: Cluster
    calibrations: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What ``run.json`` says of the GPUs."""
        calibrations = [dict(answer) for answer in self.calibrations]
        return {"notes": list(self.notes), "calibrations": calibrations}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Holder:
    """An actor that holds a GPU, and its pending answer."""

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
    """The cluster as far as the configuration wants it, its unfit GPUs held.

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
    """Measure the GPUs of every model that has several; hold the unfit while the context lasts.

    A model with nothing but unfit GPUs is measured on all the same, with a note.
    """
    holders = _hold_all(cluster, question)
    try:
        # Every GPU is measured at the same time.
        answered = _answered(holders)
        answers = [_answer(holder) for holder in answered]
        # The fit GPUs are given back to Ray; the unfit stay held.
        reasons = judge(answers)
        aside = [answered[index] for index in reasons if _has_better(index, answers, reasons)]
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
    """Hold and ask every GPU of the models that have several: one alone has no equal."""
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
    # A slow GPU is judged against the median of its model, so only measured ones count.
    slow = unfit([answers[index] for index in measured], MAX_SLOWDOWN)
    return reasons | {measured[position]: reason for position, reason in slow.items()}


def _hold(node: Node, question: Question) -> _Holder:
    strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    make: Any = ray.remote(_HoldingActor)
    actor = make.options(num_cpus=0, num_gpus=1, scheduling_strategy=strategy).remote()
    return _Holder(node=node, actor=actor, reference=actor.ask.remote(question))


def _release(holders: Iterable[_Holder]) -> None:
    for holder in holders:
        ray.kill(holder.actor)


def _answered(holders: Sequence[_Holder]) -> list[_Holder]:
    """Those whose GPU has answered in time."""
    if not holders:
        return []
    references = [holder.reference for holder in holders]
    ready, _ = ray.wait(references, num_returns=len(references), timeout=BUSY_GPU_SECONDS)
    return [holder for holder in holders if holder.reference in ready]


def _answer(holder: _Holder) -> dict[str, Any]:
    where = {"node": holder.node.address, "model": holder.node.hardware}
    return {**where, **ray.get(holder.reference)}


def _has_better(
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
