"""What Tune still holds of a trial that has ended, which it keeps until the sweep ends: nothing of any size."""

from __future__ import annotations

import gc
import io
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial

from orchestrator.running.cluster.tune_callback import Bookkeeper
from orchestrator.running.nodes import Cluster, Node
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder


class _Large:
    """Stands for what takes memory."""


def _trial() -> tuple[Any, list[weakref.ref[_Large]]]:
    """One that has run, and what it was given, what its actor said of itself and what it reported."""
    given, said, reported = _Large(), _Large(), _Large()
    trial: Any = Trial("slot", stub=True, config={"specs": [given]}, storage=_Large())  # type: ignore[no-untyped-call]
    actor = SimpleNamespace(
        get_auto_filled_metrics=SimpleNamespace(remote=lambda **_: {"said": said})
    )
    trial.set_ray_actor(actor)
    trial.update_last_result({"reported": reported, "figure": 1.0})
    trial.set_ray_actor(None)
    return trial, [
        weakref.ref(given),
        weakref.ref(said),
        weakref.ref(reported),
        weakref.ref(trial.storage),
    ]


def test_of_an_ended_trial_nothing_is_kept_but_what_the_first_has_in_common_with_it(
    tmp_path: Path,
) -> None:
    node = Node(node_id="a", address="a", gpus=1, cpus=1, host_bytes=1, environment={})
    progress = Progress(0, 1, (), stream=io.StringIO())
    session = Session(Grid([]), RunFolder(tmp_path), progress, time_budget_seconds=None)
    bookkeeper = Bookkeeper(session, Cluster(nodes=(node,)))
    (first, _), (second, large) = _trial(), _trial()
    for trial in (first, second):
        bookkeeper.on_trial_complete(0, [first, second], trial)
    gc.collect()
    assert [reference() for reference in large] == [None] * 4
    assert not second.metric_analysis
