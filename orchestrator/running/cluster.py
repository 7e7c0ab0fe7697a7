"""Ray: what the cluster has, and one slot per GPU under Tune."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Tune reads these when it is imported: its own per-trial files and signal handling are not wanted.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray import tune
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs import environment, preload
from jobs.record import Outcome, TrialRecord, record_from_json, record_to_json
from jobs.slot import Slot, SlotDiedError
from jobs.spec import Needs, TrialSpec, spec_from_json, to_json
from orchestrator.running.nodes import Cluster, Node, Place
from orchestrator.running.session import Session

_INFRASTRUCTURE_RETRIES = 2


@contextmanager
def connected(address: str | None) -> Iterator[Cluster]:
    """A Ray cluster for the time of a sweep: the one at ``address`` or ``RAY_ADDRESS``, or one started here."""
    started_here = not ray.is_initialized()
    if started_here:
        # Left to itself, Ray joins whatever cluster was last started on this machine, and waits for one that has died.
        where = address or os.environ.get("RAY_ADDRESS") or "local"
        ray.init(
            address=where,
            include_dashboard=False if where == "local" else None,
            logging_level=logging.ERROR,
            log_to_driver=False,
            configure_logging=True,
        )
    try:
        yield Cluster(nodes=_survey())
    finally:
        if started_here:
            ray.shutdown()


def ask_nodes(address: str, question: Callable[[], Any], seconds: float) -> list[tuple[str, Any]]:
    """(address, answer or RayError) of every live node; takes no GPU, so a busy cluster answers too.

    Raises ConnectionError, RuntimeError or ValueError where the cluster cannot be joined.
    """
    try:
        context = ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except ray.exceptions.AuthenticationError as error:
        raise ConnectionError(str(error)) from None
    with context:
        alive = [node for node in _nodes() if node["Alive"]]
        pending = [_on(node["NodeID"], gpus=0)(_call).remote(question) for node in alive]
        ray.wait(pending, num_returns=len(pending), timeout=seconds)
        return [(node["NodeManagerAddress"], _answer(ref)) for node, ref in zip(alive, pending, strict=True)]


def _call(question: Callable[[], Any]) -> Any:
    return question()


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference, timeout=0)
    except ray.exceptions.RayError as error:
        return error


def prepare(cluster: Cluster, ops: Sequence[str]) -> dict[str, Any]:
    """Pay one-time costs on every node that will run trials: node -> op -> seconds, or why it cannot be built."""
    if not ops:
        return {}
    nodes = [node for node in cluster.nodes if node.gpus or not cluster.gpus]
    pending = [_on(node.node_id, node.gpus)(_prepare).remote(list(ops)) for node in nodes]
    return {node.address: costs for node, costs in zip(nodes, ray.get(pending), strict=True)}


def run(session: Session, cluster: Cluster, asked: Needs | None = None, told: Sequence[tune.Callback] = ()) -> None:
    """Run the session's trials on every slot until its search is exhausted, its budget spent or it is interrupted.

    ``asked`` is what the configuration wants a trial to reserve; zeros in it mean a GPU's share of its node. A trial
    for one model of GPU runs on that model's nodes. ``told`` hear of every trial.
    """
    places = {part.hardware: part.place(asked or Needs()) for part in cluster.by_hardware()}
    anywhere = cluster.place(asked or Needs())
    reserved = {model: _reserve(place) for model, place in {**places, "": anywhere}.items()}
    with tempfile.TemporaryDirectory(prefix="tune-") as storage, _interruptible(session):
        tuner = tune.Tuner(
            tune.with_resources(_SlotTrainable, lambda config: reserved[config["gpu_model"]]),
            tune_config=tune.TuneConfig(
                search_alg=_SessionSearcher(session, places, anywhere),
                num_samples=-1,
                # One more than there are slots is pending at any time, so that no slot waits for the driver.
                max_concurrent_trials=cluster.slots + len(places),
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=storage,
                verbose=0,
                callbacks=[*told, _Bookkeeper(session, cluster)],
                failure_config=tune.FailureConfig(max_failures=_INFRASTRUCTURE_RETRIES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False, checkpoint_frequency=0),
            ),
        )
        tuner.fit()


class _SlotTrainable(tune.Trainable):
    """An actor that keeps one slot for as long as it lives; each step is one of our trials, most often the only one."""

    def setup(self, config: dict[str, Any]) -> None:
        self._slot: Slot | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True

    def step(self) -> dict[str, Any]:
        specs = self.config["specs"]
        spec = spec_from_json(json.loads(specs[self.iteration]))
        if self._slot is None:
            self._slot = Slot(spec.needs.cpus)
        for attempt in range(_INFRASTRUCTURE_RETRIES):
            left = self.config["ends_at"] - time.time() if self.config["ends_at"] else float("inf")
            try:
                record = self._slot.run(spec, max(1.0, min(spec.measure.deadline_seconds, left)))
                break
            except SlotDiedError as error:
                if attempt + 1 == _INFRASTRUCTURE_RETRIES:
                    record = _crashed(spec, f"{error}, {_INFRASTRUCTURE_RETRIES} times", environment.describe())
        return {"record": json.dumps(record_to_json(record)), "done": self.iteration + 1 == len(specs)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None  # a measurement has no state worth keeping

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None

    def cleanup(self) -> None:
        if self._slot is not None:
            self._slot.close()


class _NotKept:
    """Tune writes what it is given to disk, to restore a run from; ours are resumed from their records."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _SessionSearcher(_NotKept, Searcher):
    """Any of our searches as a Tune searcher."""

    def __init__(self, session: Session, places: Mapping[str, Place], anywhere: Place) -> None:
        super().__init__()
        self._session = session
        self._places, self._anywhere = places, anywhere

    def suggest(self, trial_id: str) -> Any:
        specs = self._session.next_trials()
        if not specs:
            return Searcher.FINISHED if self._session.finished else None
        place = self._places.get(specs[0].gpu_model, self._anywhere)
        told = [json.dumps(to_json(place.given(spec))) for spec in specs]
        return {"specs": told, "ends_at": self._session.ends_at, "gpu_model": specs[0].gpu_model}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        return None  # the bookkeeper has told the session already


class _Bookkeeper(_NotKept, tune.Callback):
    """Hands every record to the session as it arrives; a trial that Tune gave up on gets one too."""

    def __init__(self, session: Session, cluster: Cluster) -> None:
        self._session = session
        self._environment = next(
            (node.environment for node in cluster.nodes if node.gpus), cluster.nodes[0].environment
        )

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        # Taken out, for Tune keeps all results until it ends; whoever else reads the record comes before.
        if (record := result.pop("record", None)) is not None:
            self._session.ended(record_from_json(json.loads(record)))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        trial.metric_analysis.clear()  # 20 kB of statistics a trial, which Tune keeps and nobody reads
        trial.metric_n_steps.clear()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        for spec in (spec_from_json(json.loads(text)) for text in trial.config["specs"]):
            if spec.trial_id in self._session.running:
                self._session.ended(_crashed(spec, _actor_error(trial), self._environment))


def _actor_error(trial: Any) -> str:
    """The last line of what Tune keeps of an actor's end."""
    path = getattr(trial, "error_file", None)
    if path and os.path.exists(path):
        with open(path) as file:
            lines = [line.strip() for line in file if line.strip()]
        if lines:
            return lines[-1][:500]
    return "the actor died"


def _crashed(spec: TrialSpec, reason: str, where: Mapping[str, Any]) -> TrialRecord:
    killed_by_ray = "OutOfMemoryError" in reason or "memory pressure" in reason or "low on memory" in reason
    outcome = Outcome.HOST_OUT_OF_MEMORY if killed_by_ray else Outcome.CRASHED
    reason = reason.partition(". ")[0][:300]
    return TrialRecord(spec=spec, outcome=outcome, reason=reason, started_at=time.time(), environment=where)


def _reserve(place: Place) -> tune.PlacementGroupFactory:
    return tune.PlacementGroupFactory([dict(place.bundle)], bundle_label_selector=place.label_selector)


def _survey() -> tuple[Node, ...]:
    """Every live node, described from inside."""
    alive = [node for node in _nodes() if node["Alive"] and node["Resources"].get("CPU")]
    nodes = [
        Node(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            gpus=int(node["Resources"].get("GPU", 0)),
            cpus=int(node["Resources"]["CPU"]),
            host_bytes=int(0.9 * node["Resources"].get("memory", 0)),
            environment={},
        )
        for node in alive
    ]
    described = ray.get([_on(node.node_id, node.gpus)(_describe).remote() for node in nodes])
    return tuple(
        dataclasses.replace(node, environment=found, cpus=min(node.cpus, cores))
        for node, (found, cores) in zip(nodes, described, strict=True)
    )


def _nodes() -> Any:
    return ray.nodes()  # type: ignore[no-untyped-call]


def _on(node_id: str, gpus: int) -> Any:
    """A decorator for functions to run on one node, with a GPU in sight where it has any."""
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    resources: dict[str, Any] = {"num_cpus": 0, "num_gpus": min(gpus, 1), "scheduling_strategy": strategy}
    return ray.remote(**resources)


def _describe() -> tuple[dict[str, Any], int]:
    return environment.describe(), environment.cores()


def _prepare(ops: list[str]) -> Any:
    command = [sys.executable, "-m", "jobs.prepare", *ops]
    variables = {**os.environ, **preload.environment(environment.cores())}
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=variables)
    return json.loads(finished.stdout) if finished.returncode == 0 else {"failed": finished.returncode}


@contextmanager
def _interruptible(session: Session) -> Iterator[None]:
    """The first Ctrl-C lets running trials finish; the second gives up on them."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        session.interrupt()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        previous = signal.signal(signal.SIGINT, interrupted)
    except ValueError:  # not the main thread: a notebook or a test
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
