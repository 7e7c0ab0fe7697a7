"""Sweeps over two invented GPU models, run in a process of its own.

    python -m tests.support.two_model_cluster FOLDER

A variable in their environment distinguishes two nodes of one machine: "large" has two GPUs,
one of which is slow, and "small" has one. The trials themselves write to FOLDER where they ran.
A node joins a second sweep. What came of all this goes to stdout as JSON.
"""

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import ray
from ray.cluster_utils import Cluster as RayNodes

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.cluster import connected, membership, run_trials
from orchestrator.running.cluster.messages import RECORD
from orchestrator.running.gpu_screening import only_fit
from orchestrator.running.nodes import Cluster, Node
from orchestrator.running.session import Session
from orchestrator.search.base import Grid
from orchestrator.search.several import PerGpuModel, for_gpu_model
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.faults import with_fault
from tests.support.stand_in_slot import StandInSlot, equal_trials

NODE, GPU = "INVENTED_NODE", "CUDA_VISIBLE_DEVICES"
GPUS = {"large": 2, "small": 1}
JOINING = "second small"
TRIALS = 2
MOST_TRIALS = 4000
"""Of the second sweep, which ends when the node that joined has run one."""


def one_slow() -> Mapping[str, Any]:
    """A measurement in which GPU 1 of the large node is slow."""
    is_slow = os.environ[NODE] == "large" and ray.get_gpu_ids() == [1]
    return measurement(0.8 if is_slow else 1.0)


def all_hot() -> Mapping[str, Any]:
    return {**measurement(1.0), "slowed": ["hardware thermal limit"]}


def measurement(factor: float) -> dict[str, Any]:
    """An invented GPU's, so many times as fast as others of its model."""
    rates = {"flops_per_second": {"bf16": factor * 1e14}, "copy_bytes_per_second": factor * 1e12}
    return {"device": os.environ[NODE], "uuid": "", "slowed": [], **rates}


def add_node(nodes: RayNodes, name: str, gpus: int) -> None:
    os.environ[NODE] = name
    nodes.add_node(num_cpus=2, num_gpus=gpus)


def survey() -> Cluster:
    """The cluster as if each node had GPUs of its own model."""
    with connected(None) as cluster:
        return Cluster(nodes=tuple(map(as_invented, cluster.nodes)))


def as_invented(node: Node) -> Node:
    """The node with a GPU model after its number of GPUs."""
    return dataclasses.replace(
        node, environment={**node.environment, "gpu_model": model_of(node.gpus)}
    )


def model_of(gpus: int) -> str:
    """The invented model of a node with so many GPUs."""
    return {2: "large", 1: "small"}.get(gpus, "")


def main(folder: Path) -> None:
    nodes = RayNodes(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    for name, gpus in GPUS.items():
        add_node(nodes, name, gpus)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    cluster = survey()
    with only_fit(cluster, all_hot) as hot:
        answer: dict[str, Any] = {"hot": hot.notes, "hot slots": hot.cluster.slots_by_model()}
    with only_fit(cluster, one_slow) as screening:
        answer["notes"] = screening.notes
        answer["slots"] = screening.cluster.slots_by_model()
        answer["outcomes"] = sweep(screening.cluster, folder)
    answer["joined"] = sweep_that_a_node_joins(nodes, cluster, folder)
    print(json.dumps(answer))


def sweep(cluster: Cluster, folder: Path) -> list[tuple[str, str, str]]:
    """GPU model, outcome and reason of every trial."""
    slots = cluster.slots_by_model()
    plan = [build_tiny_spec(repeat=number) for number in range(TRIALS)]
    searches = {}
    for model in slots:
        searches[model] = Grid(noting(spec, folder) for spec in for_gpu_model(plan, model))
    run_folder = RunFolder(folder / "run")
    with run_folder.locked():
        session = Session(PerGpuModel(searches, slots), run_folder)
        run_trials(session, cluster, on_slots=slots.update)
        session.write_missing_records()
    records = run_folder.records().values()
    return sorted((own.spec.gpu_model, own.outcome.value, own.reason) for own in records)


def noting(spec: TrialSpec, folder: Path) -> TrialSpec:
    """The trial, made to write where it runs."""
    file = folder / f"{spec.gpu_model}-{spec.repeat}.json"
    return with_fault(spec, "note_variables", file=str(file), names=[NODE, GPU])


class NamedSlot(StandInSlot):
    """Its trials take a moment, and say on which node they ran."""

    def step(self) -> dict[str, Any]:
        time.sleep(0.2)
        result = super().step()
        if RECORD in result:
            result[RECORD] = dataclasses.replace(result[RECORD], reason=os.environ[NODE])
        return result


class UntilJoined(Session):
    """A session that ends when the node that joined has run a trial."""

    def ended(self, record: TrialRecord) -> None:
        super().ended(record)
        if record.reason == JOINING:
            self.close(CloseReason.ENDED)


class InventedQueries:
    """Nodes that joined have the model after their number of GPUs."""

    def __init__(self) -> None:
        self._models: dict[str, str] = {}

    def ask(self, node_id: str, gpus: int) -> None:
        self._models[node_id] = model_of(gpus)

    def answers(self) -> dict[str, str]:
        answers, self._models = self._models, {}
        return answers


def sweep_that_a_node_joins(nodes: RayNodes, cluster: Cluster, folder: Path) -> dict[str, Any]:
    """The slots, and node and GPU model of the trials, of a sweep that a node joins."""
    slots = cluster.slots_by_model()
    searches = {model: Grid(for_gpu_model(equal_trials(MOST_TRIALS), model)) for model in slots}
    run_folder = RunFolder(folder / "joined")
    with run_folder.locked(), mock.patch.object(membership, "ModelQueries", InventedQueries):
        session = UntilJoined(PerGpuModel(searches, slots), run_folder)
        options: dict[str, Any] = {"on_slots": slots.update, "trainable": NamedSlot}
        running = threading.Thread(target=run_trials, args=(session, cluster), kwargs=options)
        running.start()
        add_node(nodes, JOINING, 1)  # Ray starts nodes from the main thread only
        running.join()
    ran = {(own.spec.gpu_model, own.reason) for own in run_folder.records().values()}
    return {"slots": slots, "ran": sorted(ran)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
