"""A sweep over two invented GPU models, one of which has a slow GPU; run in a process of its own.

    python -m tests.support.two_model_cluster FOLDER

Two nodes of one machine are told apart by a variable in their environment: "large" has two GPUs,
"small" has one. The trials themselves write to FOLDER where they ran. What the GPU screening found
goes to stdout as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster as RayNodes

from jobs.spec import TrialSpec
from orchestrator.running.cluster import connected, run_trials
from orchestrator.running.gpu_screening import only_fit
from orchestrator.running.nodes import Cluster, Node
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.search.per_gpu_model import PerGpuModel, for_gpu_model
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.faults import with_fault

NODE, GPU = "INVENTED_NODE", "CUDA_VISIBLE_DEVICES"
GPUS = {"large": 2, "small": 1}
TRIALS = 2


def one_slow() -> Mapping[str, Any]:
    """A measurement in which GPU 1 of the large node is slow."""
    is_slow = os.environ[NODE] == "large" and ray.get_gpu_ids() == [1]
    return measurement(0.8 if is_slow else 1.0)


def all_hot() -> Mapping[str, Any]:
    """A measurement in which every GPU is too hot."""
    return {**measurement(1.0), "slowed": ["hardware thermal limit"]}


def measurement(factor: float) -> dict[str, Any]:
    """An invented GPU's, so many times as fast as others of its model."""
    rates = {"flops_per_second": {"bf16": factor * 1e14}, "copy_bytes_per_second": factor * 1e12}
    return {"device": os.environ[NODE], "uuid": "", "slowed": [], **rates}


def start() -> Cluster:
    """The nodes, and the cluster as if each had GPUs of its own model."""
    nodes = RayNodes(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    for name, gpus in GPUS.items():
        os.environ[NODE] = name
        nodes.add_node(num_cpus=2, num_gpus=gpus)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    with connected(None) as cluster:
        return Cluster(nodes=tuple(map(as_invented, cluster.nodes)))


def as_invented(node: Node) -> Node:
    """The node with a GPU model after its number of GPUs."""
    models = [name for name, gpus in GPUS.items() if gpus == node.gpus]
    model = models[0] if models else ""
    return dataclasses.replace(node, environment={**node.environment, "gpu_model": model})


def main(folder: Path) -> None:
    """Screen the GPUs, run the sweep, and print what came of it."""
    cluster = start()
    with only_fit(cluster, all_hot) as hot:
        answer: dict[str, Any] = {"hot": hot.notes, "hot slots": hot.cluster.slots_by_model()}
    with only_fit(cluster, one_slow) as screening:
        answer["notes"] = screening.notes
        answer["slots"] = screening.cluster.slots_by_model()
        answer["outcomes"] = sweep(screening.cluster, folder)
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
