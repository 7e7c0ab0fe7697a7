"""Screens the GPUs of a cluster: each is measured briefly, and slow ones are set aside.

Ray decides which GPU a trial gets, so an idle actor reserves such a GPU until the sweep ends.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs.node import calibration
from jobs.node.checks.rates import unfit
from orchestrator.planning.keys.config_model import Resources
from orchestrator.running.cluster import connected
from orchestrator.running.nodes import Cluster, Node

MAX_SLOWDOWN = 0.07
"""A GPU is set aside if it is slower than the median of its model by more than this share. The
speeds of healthy GPUs differ by less."""
BUSY_GPU_SECONDS = 60.0
"""How long to wait for a GPU's answer. A GPU without an answer counts as busy."""

Measurement = Callable[[], Mapping[str, Any]]
"""Measures the only GPU that its process sees. Returns a ``Calibration`` as plain values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Screening:
    """The cluster without the GPUs that were set aside, all measurements, and sentences."""

    cluster: Cluster
    calibrations: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The entry of ``run.json`` about the GPUs."""
        return {"notes": list(self.notes), "calibrations": list(map(dict, self.calibrations))}


class _Holder:
    """An actor that reserves one GPU."""

    def measure(self, measurement: Measurement) -> dict[str, Any]:
        gpu = {"gpu": str(ray.get_gpu_ids()[0])}
        try:
            return {**gpu, **measurement()}
        except RuntimeError as error:
            return {**gpu, "failed": str(error)}


@contextmanager
def screened_cluster(address: str | None, resources: Resources) -> Iterator[Screening]:
    """The allowed nodes, without GPUs that are set aside. Raises ClusterError or NoSuchGpuError."""
    with connected(address) as whole:
        chosen = whole.only(resources.gpu_models).with_gpus_per_trial(resources.gpus_per_trial)
        all_of_them = nullcontext(Screening(cluster=chosen))
        with only_fit(chosen) if resources.screen_gpus else all_of_them as screening:
            yield screening


@contextmanager
def only_fit(
    cluster: Cluster, measurement: Measurement = calibration.calibrate_briefly
) -> Iterator[Screening]:
    """Measure the GPUs, and keep trials off the slow and broken ones during the context, unless all
    of a model are, which a note says. A single GPU of its model is not measured."""
    nodes = []
    for part in cluster.by_hardware():
        if part.gpus > 1:
            nodes += [node for node in part.nodes for _ in range(node.gpus)]
    holders = dict(enumerate(map(_holder_on, nodes)))
    try:
        answers = _answers(nodes, holders, measurement)
        reasons = judge(answers)
        fit_models = {answer["model"] for at, answer in answers.items() if at not in reasons}
        aside = [at for at in reasons if answers[at]["model"] in fit_models]
        # All other GPUs are given back to Ray, for the trials.
        for at in holders.keys() - aside:
            ray.kill(holders.pop(at))
        set_aside = Counter(nodes[at].node_id for at in aside)
        left = tuple(replace(node, set_aside=set_aside[node.node_id]) for node in cluster.nodes)
        yield Screening(
            cluster=replace(cluster, nodes=left),
            calibrations=tuple(answers.values()),
            notes=tuple(_note(answers[at], reasons[at], is_aside=at in aside) for at in reasons),
        )
    finally:
        for holder in holders.values():
            ray.kill(holder)


def _answers(
    nodes: Sequence[Node], holders: Mapping[int, Any], measurement: Measurement
) -> dict[int, dict[str, Any]]:
    """Place of a holder -> what it measured, for those that have answered in time."""
    # Every GPU is measured at the same time.
    references = {holder.measure.remote(measurement): at for at, holder in holders.items()}
    if not references:
        return {}
    ready, _ = ray.wait(list(references), num_returns=len(references), timeout=BUSY_GPU_SECONDS)
    return {
        at: {"node": nodes[at].address, "model": nodes[at].hardware, **ray.get(reference)}
        for reference, at in references.items()
        if reference in ready
    }


def _note(answer: Mapping[str, Any], reason: str, *, is_aside: bool) -> str:
    name = f"{answer['model']} {answer.get('uuid') or answer['gpu']} on {answer['node']}"
    kept = "was measured on, because no other GPU of its model is fit"
    return f"{name} {'was set aside' if is_aside else kept}: {reason}"


def _holder_on(node: Node) -> Any:
    strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    make: Any = ray.remote(_Holder)
    return make.options(num_cpus=0, num_gpus=1, scheduling_strategy=strategy).remote()


def judge(answers: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Place of a GPU's answer -> why the GPU must not measure."""
    failed = {at: answer["failed"] for at, answer in answers.items() if "failed" in answer}
    # A GPU is slow relative to the median of its model, so GPUs that failed are left out.
    measured = [at for at in answers if at not in failed]
    slow = unfit([answers[at] for at in measured], MAX_SLOWDOWN)
    reasons = {at: f"it could not be measured: {why}" for at, why in failed.items()}
    return reasons | {measured[position]: reason for position, reason in slow.items()}
