"""Which GPUs of a cluster are fit to measure on: each is calibrated, and trials are kept off those that are not.

It is Ray that hands out GPUs: one that is to get no trial is held by an actor that does nothing, until the sweep ends.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs.node import calibration
from jobs.node.checks.rates import unfit
from orchestrator.planning.settings import Resources
from orchestrator.running.cluster import connected
from orchestrator.running.nodes import Cluster, Node

SLOWER = 0.07
"""Than the median of its model: more than GPUs that are well differ by."""
_PATIENCE_SECONDS = 60.0
"""A GPU that somebody else holds for longer is not judged."""

Question = Callable[[], Mapping[str, Any]]
"""What a GPU is asked, in a process that sees no other: a ``Calibration`` as plain values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitness:
    """The cluster less its unfit GPUs, every GPU's calibration, and sentences about the unfit."""

    cluster: Cluster
    calibrations: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What ``run.json`` says of the GPUs."""
        return {"notes": list(self.notes), "calibrations": [dict(one) for one in self.calibrations]}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Held:
    node: Node
    holder: Any
    answer: Any


class _Holder:
    def ask(self, question: Question) -> dict[str, Any]:
        gpu = {"gpu": str(ray.get_gpu_ids()[0])}
        try:
            return {**gpu, **question()}
        except RuntimeError as error:
            return {**gpu, "failed": str(error)}


@contextmanager
def reached(address: str | None, resources: Resources) -> Iterator[Fitness]:
    """The cluster in reach as far as the configuration wants it, its unfit GPUs held. Raises NoSuchGpuError."""
    with connected(address) as whole:
        chosen = whole.only(resources.gpu_models)
        with (
            only_fit(chosen) if resources.calibrate else nullcontext(Fitness(cluster=chosen)) as fit
        ):
            yield fit


@contextmanager
def only_fit(
    cluster: Cluster, question: Question = calibration.calibrate_briefly
) -> Iterator[Fitness]:
    """Calibrate the GPUs of every model that has several; hold those that are unfit while the context lasts.

    A model that has none but unfit ones is measured all the same: rows with a note are better than none.
    """
    several = [part for part in cluster.by_hardware() if part.gpus > 1]
    held = [
        _hold(node, question) for part in several for node in part.nodes for _ in range(node.gpus)
    ]
    try:
        answered = _answered(held)
        told = [
            {"node": one.node.address, "model": one.node.hardware, **ray.get(one.answer)}
            for one in answered
        ]
        why = judge(told)
        aside = [
            answered[place] for place in why if not _all_unfit(told[place]["model"], told, why)
        ]
        for one in held:
            if one not in aside:
                ray.kill(one.holder)
        held = aside
        notes = tuple(
            _note(told[place], why[place], held=answered[place] in aside) for place in why
        )
        yield Fitness(cluster=_without(cluster, aside), calibrations=tuple(told), notes=notes)
    finally:
        for one in held:
            ray.kill(one.holder)


def judge(told: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Place -> what is wrong with the GPU there."""
    failed = {
        place: f"it could not be calibrated: {one['failed']}"
        for place, one in enumerate(told)
        if "failed" in one
    }
    places = [place for place in range(len(told)) if place not in failed]
    slow = unfit([told[place] for place in places], SLOWER)
    return failed | {places[place]: reason for place, reason in slow.items()}


def _hold(node: Node, question: Question) -> _Held:
    where = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    make: Any = ray.remote(_Holder)
    holder = make.options(num_cpus=0, num_gpus=1, scheduling_strategy=where).remote()
    return _Held(node=node, holder=holder, answer=holder.ask.remote(question))


def _answered(held: Sequence[_Held]) -> list[_Held]:
    if not held:
        return []
    ready, _ = ray.wait(
        [one.answer for one in held], num_returns=len(held), timeout=_PATIENCE_SECONDS
    )
    return [one for one in held if one.answer in ready]


def _all_unfit(model: str, told: Sequence[Mapping[str, Any]], why: Mapping[int, str]) -> bool:
    return all(place in why for place, one in enumerate(told) if one["model"] == model)


def _note(one: Mapping[str, Any], why: str, *, held: bool) -> str:
    name = f"{one['model']} {one.get('uuid') or one['gpu']} on {one['node']}"
    return (
        f"{name} {'was set aside' if held else 'was measured on although no other is well'}: {why}"
    )


def _without(cluster: Cluster, aside: Sequence[_Held]) -> Cluster:
    unfit_on = Counter(one.node.node_id for one in aside)
    nodes = tuple(
        dataclasses.replace(node, set_aside=unfit_on[node.node_id]) for node in cluster.nodes
    )
    return dataclasses.replace(cluster, nodes=nodes)
