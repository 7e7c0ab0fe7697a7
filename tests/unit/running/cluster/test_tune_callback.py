"""What Tune keeps of a trial that has ended: nothing of any size."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial

from orchestrator.running.cluster.membership import Membership
from orchestrator.running.cluster.searcher import SessionSearcher
from orchestrator.running.cluster.slot_watch import SlotWatch
from orchestrator.running.cluster.tune_callback import TuneCallback
from orchestrator.running.nodes import Cluster, Node
from orchestrator.running.session import Session
from orchestrator.search.base import Grid
from orchestrator.storage.run_folder import RunFolder


class Large:
    """Stands for what takes memory."""


def ended_trial() -> tuple[Any, list[weakref.ref[Large]]]:
    """A trial that has run: its config, its actor's first words, its result and its storage."""
    config, said, reported = Large(), Large(), Large()
    trial: Any = Trial("slot", stub=True, config={"bundle": config}, storage=Large())
    metrics = SimpleNamespace(remote=lambda **_: {"said": said})
    trial.set_ray_actor(SimpleNamespace(get_auto_filled_metrics=metrics))
    trial.update_last_result({"reported": reported, "figure": 1.0})
    trial.set_ray_actor(None)
    return trial, [weakref.ref(large) for large in (config, said, reported, trial.storage)]


def test_tune_keeps_nothing_large_of_an_ended_trial(tmp_path):
    node = Node(node_id="a", address="a", gpus=1, cpus=1, host_bytes=1, environment={})
    session = Session(Grid([]), RunFolder(tmp_path))
    membership = Membership(session, Cluster(nodes=(node,)))
    searcher = SessionSearcher(session, membership.slots.placements)
    callback = TuneCallback(session, searcher, membership, SlotWatch(session.message), {})
    first, _ = ended_trial()
    second, large = ended_trial()
    for trial in (first, second):
        callback.on_trial_complete(0, [first, second], trial)
    gc.collect()
    assert [reference() for reference in large] == [None] * 4
    assert not second.metric_analysis
