"""A sweep over two invented GPU models, which a node joins, run in a process of its own.

    python -m tests.support.two_model_cluster FOLDER

A variable in their environment distinguishes the nodes of one machine: "large" has three GPUs, one
of which is slow, and "small" has one. The trials themselves write to FOLDER where they ran. They
take less than a slot needs to start. What came of all this goes to stdout as JSON.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import psutil
import ray
from ray.cluster_utils import Cluster as RayNodes
from threadpoolctl import threadpool_info

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.cluster import connected, membership, run_trials
from orchestrator.running.cluster.slot_actor import SlotTrainable
from orchestrator.running.gpu_screening import only_fit
from orchestrator.running.nodes import Cluster, Node
from orchestrator.running.session import Session
from orchestrator.search.base import Grid
from orchestrator.search.several import PerGpuModel, for_gpu_model
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.faults import with_fault

NODE, GPU = "INVENTED_NODE", "CUDA_VISIBLE_DEVICES"
JOINING = "second small"
SLOTS = {("large", "0"), ("large", "2"), ("small", "0"), (JOINING, "0")}
"""Node and GPU of each."""
MOST_TRIALS = 500
"""Of the sweep, which ends when every slot has run one."""


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
    return {3: "large", 1: "small"}.get(gpus, "")


def main(folder: Path) -> None:
    os.environ[NODE] = "large"
    nodes = RayNodes(initialize_head=True, head_node_args={"num_cpus": 3, "num_gpus": 3})
    os.environ[NODE] = "small"
    nodes.add_node(num_cpus=2, num_gpus=1)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    cluster = survey()
    with only_fit(cluster, all_hot) as hot:
        answer: dict[str, Any] = {"hot": hot.notes, "hot slots": hot.cluster.slots_by_model()}
    with only_fit(cluster, one_slow) as screening:
        answer["notes"] = screening.notes
        answer["slots"] = screening.cluster.slots_by_model()
        answer |= sweep_that_a_node_joins(nodes, screening.cluster, folder)
    print(json.dumps(answer))


def noting(spec: TrialSpec, folder: Path) -> TrialSpec:
    """The trial, made to write where it runs."""
    return with_fault(spec, "note_variables", file=str(note_of(spec, folder)), names=[NODE, GPU])


def note_of(spec: TrialSpec, folder: Path) -> Path:
    return folder / f"{spec.gpu_model}-{spec.repeat}.json"


def blas_threads() -> int:
    """The threads that this process may compute on."""
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return max(int(library["num_threads"]) for library in libraries)


class LateSlot(SlotTrainable):
    """One of the two slots of the large node starts when the other one is busy."""

    def setup(self, config: dict[str, Any]) -> None:
        if ray.get_gpu_ids() == [2]:
            time.sleep(2.0)
        super().setup(config)


class UntilAllRan(Session):
    """A session that ends when every slot has run a trial."""

    notes: ClassVar[Path]
    where: ClassVar[list[tuple[str, ...]]] = []
    """GPU model, node, GPU and outcome of each trial."""
    threads: ClassVar[set[int]] = set()
    niceness: ClassVar[set[int]] = set()

    def ended(self, record: TrialRecord) -> None:
        super().ended(record)
        assert record.provenance.slot_pid is not None
        self.threads.add(blas_threads())
        self.niceness.add(psutil.Process(record.provenance.slot_pid).nice())
        note = json.loads(note_of(record.spec, self.notes).read_text())
        own = (record.spec.gpu_model, note[NODE], note[GPU], record.outcome.value)
        self.where.append(own)
        if {own[1:3] for own in self.where} == SLOTS:
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
    """The slots at the end, where the trials ran, and on what the driver computed meanwhile."""
    slots = cluster.slots_by_model()
    plan = [build_tiny_spec(repeat=number) for number in range(MOST_TRIALS)]
    searches = {}
    for model in slots:
        searches[model] = Grid(noting(spec, folder) for spec in for_gpu_model(plan, model))
    run_folder = RunFolder(folder / "run")
    queries = mock.patch.object(membership, "ModelQueries", InventedQueries)
    with run_folder.locked(), queries, ThreadPoolExecutor(1) as pool:
        UntilAllRan.notes = folder
        session = UntilAllRan(PerGpuModel(searches, slots), run_folder)
        options: dict[str, Any] = {"on_slots": slots.update, "trainable": LateSlot}
        running = pool.submit(run_trials, session, cluster, **options)
        os.environ[NODE] = JOINING
        nodes.add_node(num_cpus=2, num_gpus=1)  # Ray starts nodes from the main thread only
        running.result()
    return {
        "joined slots": slots,
        "ran": sorted(set(session.where)),
        "ended": len(session.where),
        "records": len(run_folder.records()),
        "threads meanwhile": sorted(session.threads),
        "threads after": blas_threads(),
        "niceness": sorted(session.niceness),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
