"""A cluster without Ray: trials run one after another in this process, through a function."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord, with_provenance
from jobs.spec import TrialSpec
from orchestrator.planning.keys.config_model import Resources
from orchestrator.running import batch_size_run, measurement, sweep_run
from orchestrator.running.gpu_screening import Screening
from orchestrator.running.nodes import Cluster, Node
from orchestrator.running.session import Session
from tests.support.observers import Recorder

RunTrial = Callable[[TrialSpec], TrialRecord]


def node_of(gpu_model: str, gpus: int = 1) -> Node:
    """A node named after its GPU model; "" is a node without a GPU."""
    return Node(
        node_id=gpu_model or "bare",
        address=gpu_model or "bare",
        gpus=gpus if gpu_model else 0,
        cpus=8,
        host_bytes=2**30,
        environment={"gpu_model": gpu_model if gpus else "", "cpu_model": "a processor"},
    )


class FakeRay:
    """Takes the place of Ray in the running wing. ``ran`` are the trials that it has run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *gpu_models: str) -> None:
        self.cluster = Cluster(nodes=tuple(node_of(model) for model in gpu_models))
        self.run_trial: RunTrial = self.end_ok
        self.ran: list[TrialSpec] = []
        for module in (sweep_run, batch_size_run):
            monkeypatch.setattr(module, "screened_cluster", self._screened_cluster)
        monkeypatch.setattr(measurement, "run_trials", self._run_trials)
        monkeypatch.setattr(measurement, "prepare", lambda cluster, ops: {})
        monkeypatch.setattr(sweep_run, "Metrics", lambda sweep, planned: Recorder())

    def end_ok(self, spec: TrialSpec) -> TrialRecord:
        """A trial that ends ok, with figures that follow from its batch."""
        return self.end(spec, Outcome.OK)

    def end(self, spec: TrialSpec, outcome: Outcome, reason: str = "") -> TrialRecord:
        """A trial's record on its GPU model."""
        hardware = spec.gpu_model or self.cluster.nodes[0].environment["gpu_model"]
        figures = {
            "samples_per_second": 10.0 * spec.micro_batch,
            "samples_per_second_ci95": 0.01,
            "peak_allocated_bytes": 2**20 * spec.micro_batch,
        }
        record = TrialRecord(
            spec=spec,
            outcome=outcome,
            reason=reason,
            measurements=figures if outcome is Outcome.OK else {},
            environment=node_of(hardware).environment,
        )
        return with_provenance(record, started_at=1e9 + len(self.ran), slot_seconds=1.0)

    @contextmanager
    def _screened_cluster(self, address: str | None, resources: Resources) -> Iterator[Screening]:
        yield Screening(cluster=self.cluster.only(resources.gpu_models))

    def _run_trials(
        self,
        session: Session,
        cluster: Cluster,
        asked: object,
        *,
        on_slots: Callable[[Mapping[str, int]], Any] | None = None,
    ) -> tuple[str, ...]:
        while specs := session.next_trials():
            for spec in session.start(specs):
                self.ran.append(spec)
                session.ended(self.run_trial(spec))
        return ("a sentence about the machines",)
