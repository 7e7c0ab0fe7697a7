"""A sweep over two invented GPU models, one of which has a slow GPU; run by test_unlike.py in a process of its own.

    python -m tests.support.two_model_cluster FOLDER

Two nodes of one machine, told apart by a variable in their environment: "large" has two GPUs, "small" one. What ran
where is written to FOLDER by the trials themselves; what the fitness check said goes to stdout as JSON.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster as RayNodes

from orchestrator.running import cluster as ray_cluster
from orchestrator.running import gpu_screening
from orchestrator.running.nodes import Cluster, Node
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.search.per_gpu_model import PerModel, for_model
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.faults import with_fault

NODE, GPU = "INVENTED_NODE", "CUDA_VISIBLE_DEVICES"
GPUS = {"large": 2, "small": 1}
TRIALS = 2


def one_slow() -> Mapping[str, Any]:
    """A calibration in which GPU 1 of the large node is slow."""
    slow = os.environ[NODE] == "large" and ray.get_gpu_ids() == [1]
    return calibration(0.8 if slow else 1.0)


def all_hot() -> Mapping[str, Any]:
    """A calibration in which every GPU is too hot."""
    return {**calibration(1.0), "slowed": ["hardware thermal limit"]}


def calibration(factor: float) -> dict[str, Any]:
    """An invented GPU's, so many times as fast as its like."""
    rates = {"flops_per_second": {"bf16": factor * 1e14}, "copy_bytes_per_second": factor * 1e12}
    return {"device": os.environ[NODE], "uuid": "", "slowed": [], **rates}


def start() -> Cluster:
    """The nodes, and the cluster as if each had GPUs of its own model."""
    nodes = RayNodes(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    for name, gpus in GPUS.items():
        os.environ[NODE] = name
        nodes.add_node(num_cpus=2, num_gpus=gpus)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    with ray_cluster.connected(None) as found:
        return Cluster(nodes=tuple(map(as_invented, found.nodes)))


def as_invented(node: Node) -> Node:
    """The node with a GPU model after its number of GPUs."""
    model = next((name for name, gpus in GPUS.items() if gpus == node.gpus), "")
    return dataclasses.replace(node, environment={**node.environment, "gpu_model": model})


def main(folder: Path) -> None:
    """Run everything and print what came of it."""
    cluster = start()
    with gpu_screening.only_fit(cluster, all_hot) as hot:
        answer: dict[str, Any] = {"hot": [*hot.notes], "hot slots": hot.cluster.slots_by_model()}
    with gpu_screening.only_fit(cluster, one_slow) as fit:
        models = fit.cluster.slots_by_model()
        answer |= {"notes": fit.notes, "slots": models}
        plan = [build_tiny_spec(repeat=number) for number in range(TRIALS)]
        noted = [noting(spec, folder) for model in models for spec in for_model(plan, model)]
        searches = {
            model: Grid(spec for spec in noted if spec.gpu_model == model) for model in models
        }
        progress = Progress(len(noted), fit.cluster.slots, (), stream=io.StringIO())
        run_folder = RunFolder(folder / "run")
        with run_folder.locked():
            session = Session(
                PerModel(searches, models), run_folder, progress, time_budget_seconds=None
            )
            ray_cluster.run(session, fit.cluster)
            session.account()
    records = run_folder.records().values()
    answer["outcomes"] = sorted(
        (record.spec.gpu_model, record.outcome, record.reason) for record in records
    )
    print(json.dumps(answer))


def noting(spec: Any, folder: Path) -> Any:
    """The trial, made to say where it runs."""
    file = folder / f"{spec.gpu_model}-{spec.repeat}.json"
    return with_fault(spec, "note_variables", file=str(file), names=[NODE, GPU])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
