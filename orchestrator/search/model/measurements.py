"""The measurements of a candidate: the memory it needs and the speed it reaches."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.record import Outcome, TrialRecord
from jobs.steady_state import GPU_BOUND, data_wait_share, launch_bound_share
from orchestrator.analysis.configuration import gpu_memory
from orchestrator.search.model.performance_model import Branch
from orchestrator.storage.search_summary import MeasuredPick


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """The largest memory and the median speed of a candidate's repeats."""

    memory_bytes: float
    samples_per_second: float
    trial_id: str
    """The first repeat that ended ok."""
    speed_ci95: float = 0.0
    """Half the relative 95 % interval of the speed: the largest of the repeats."""
    host_bound_share: float | None = None
    """Share of the micro-batches after which the GPU ran out of work; None if unknown. At 1 the
    host alone limits the speed."""
    launch_bound_share: float = 0.0
    """At most this share of the time the GPU waited for the host in the middle of a step."""
    data_wait_share: float = 0.0
    """The share of the time that the GPU waited for its data."""
    data_share: float = 0.0
    """The host's time to prepare a batch / the time of a step."""

    def as_pick(self) -> MeasuredPick:
        return MeasuredPick(
            trial_id=self.trial_id,
            samples_per_second=self.samples_per_second,
            memory_bytes=self.memory_bytes,
        )

    @property
    def speed_error(self) -> float:
        """Half the 95 % interval of the speed, relative to it, and the share of time waited."""
        # What the GPU waited in the middle of a step may be different next time. If the branch is
        # known, the wait is either negligible or part of the host's own time.
        is_unknown = self.branch == Branch.UNKNOWN
        return self.speed_ci95 + (self.launch_bound_share if is_unknown else 0.0)

    @property
    def branch(self) -> Branch:
        """Which side of the performance model a measured time shows. A host-bound time is only an
        upper bound of the GPU's time. If the host limits a part of the time, either branch is
        possible."""
        share = self.host_bound_share
        if share is not None and share > GPU_BOUND:
            return Branch.HOST_BOUND
        is_mixed = share is None or max(self.launch_bound_share, self.data_wait_share) > GPU_BOUND
        return Branch.UNKNOWN if is_mixed else Branch.GPU_BOUND


def measurement_of(records: Iterable[TrialRecord]) -> Measurement | None:
    """The worst memory, error and waits of the repeats that ended ok, and their median speed, if
    any."""
    repeats = [record for record in records if _is_measured(record)]
    if not repeats:
        return None
    listed = [record.measurements for record in repeats]
    host_bound_shares = [figures.get("host_bound_share") for figures in listed]
    return Measurement(
        # Memory repeats almost to the byte, so the largest counts. Speeds have outliers.
        memory_bytes=max(gpu_memory(figures) for figures in listed),
        samples_per_second=statistics.median(figures["samples_per_second"] for figures in listed),
        trial_id=repeats[0].trial_id,
        speed_ci95=max(_speed_ci95(figures) for figures in listed),
        # An unknown share counts as the smallest.
        host_bound_share=max((own for own in host_bound_shares if own is not None), default=None),
        launch_bound_share=max(launch_bound_share(figures) for figures in listed),
        data_wait_share=max(data_wait_share(figures) for figures in listed),
        data_share=max(_data_share(figures) for figures in listed),
    )


def _is_measured(record: TrialRecord) -> bool:
    speed = record.measurements.get("samples_per_second") or 0.0
    figures = (speed, gpu_memory(record.measurements))
    is_positive = all(math.isfinite(figure) and figure > 0 for figure in figures)
    return record.outcome is Outcome.OK and is_positive


def _speed_ci95(figures: Mapping[str, Any]) -> float:
    ci95 = float(figures.get("samples_per_second_ci95") or 0.0)
    # A trial of a single step has no interval.
    return ci95 if math.isfinite(ci95) else 0.0


def _data_share(figures: Mapping[str, Any]) -> float:
    data_seconds = figures.get("data_seconds_median") or 0.0
    step_seconds = figures.get("step_seconds_median") or math.inf
    return min(1.0, data_seconds / step_seconds)
