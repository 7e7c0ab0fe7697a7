"""The measurements of a candidate: the memory it needs and the speed it reaches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from jobs.record import Outcome, TrialRecord
from jobs.steady_state import GPU_BOUND, launch_bound_share
from orchestrator.search.model.performance_model import Branch


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """The largest memory and the median speed of a candidate's repeats."""

    memory_bytes: float
    samples_per_second: float
    trial_id: str
    """The first repeat that ended ok."""
    speed_ci95: float = 0.0
    """Half the 95 % confidence interval of the speed, relative to it: the largest of the
    repeats."""
    host_bound_share: float | None = None
    """Share of the micro-batches after which the GPU ran out of work; None if unknown.

    At 1 the host alone limits the speed."""
    launch_bound_share: float = 0.0
    """At most this share of the time the GPU waited for the host in the middle of a step."""
    data_share: float = 0.0
    """The host's time to prepare a batch / the time of a step."""

    @property
    def speed_error(self) -> float:
        """Half the 95 % interval of the speed, relative to it, and the share of time waited.

        Time that the GPU waited in the middle of a step may be different next time. If the branch
        is known, the wait is either negligible or part of the host's own time.
        """
        if self.branch == Branch.UNKNOWN:
            return self.speed_ci95 + self.launch_bound_share
        return self.speed_ci95

    @property
    def branch(self) -> Branch:
        """Which side of the performance model a measured time shows.

        A host-bound time is the time of the host. It is only an upper bound of the GPU's time. If
        the host limits a part of the time, either branch is possible.
        """
        if self.host_bound_share is None:
            return Branch.UNKNOWN
        if self.host_bound_share > GPU_BOUND:
            return Branch.HOST_BOUND
        if self.launch_bound_share > GPU_BOUND:
            return Branch.UNKNOWN
        return Branch.GPU_BOUND


def measurement_of(records: Iterable[TrialRecord]) -> Measurement | None:
    """The repeats that ended ok, combined; None if none has both a memory and a speed."""
    repeats = []
    for record in records:
        measurement = _single(record)
        if measurement is not None:
            repeats.append(measurement)
    return _combined(repeats)


def _single(record: TrialRecord) -> Measurement | None:
    figures = record.measurements
    memory = figures.get("device_peak_bytes") or figures.get("peak_allocated_bytes")
    speed = figures.get("samples_per_second")
    if record.outcome is not Outcome.OK or not _is_positive(memory) or not _is_positive(speed):
        return None
    ci95 = float(figures.get("samples_per_second_ci95") or 0.0)
    # A trial of a single step has no interval.
    if not math.isfinite(ci95):
        ci95 = 0.0
    return Measurement(
        memory_bytes=float(memory),
        samples_per_second=float(speed),
        trial_id=record.trial_id,
        speed_ci95=ci95,
        host_bound_share=figures.get("host_bound_share"),
        launch_bound_share=launch_bound_share(figures),
        data_share=_data_share(figures),
    )


def _data_share(figures: Mapping[str, Any]) -> float:
    data_seconds = figures.get("data_seconds_median") or 0.0
    step_seconds = figures.get("step_seconds_median") or math.inf
    return min(1.0, data_seconds / step_seconds)


def _is_positive(figure: float | None) -> TypeGuard[float]:
    return figure is not None and math.isfinite(figure) and figure > 0


def _combined(repeats: Sequence[Measurement]) -> Measurement | None:
    """The worst memory, error and waits of the repeats, and their median speed."""
    if not repeats:
        return None
    # Memory repeats almost to the byte, so the largest counts. Speeds have outliers.
    first = repeats[0]
    worst = first
    speeds = []
    for repeat in repeats:
        speeds.append(repeat.samples_per_second)
        worst = _worse(worst, repeat)
    return replace(worst, trial_id=first.trial_id, samples_per_second=statistics.median(speeds))


def _worse(left: Measurement, right: Measurement) -> Measurement:
    """The larger of each figure, except the speed. An unknown share counts as the smaller one."""
    shares = [left.host_bound_share, right.host_bound_share]
    return replace(
        left,
        memory_bytes=max(left.memory_bytes, right.memory_bytes),
        speed_ci95=max(left.speed_ci95, right.speed_ci95),
        host_bound_share=max((share for share in shares if share is not None), default=None),
        launch_bound_share=max(left.launch_bound_share, right.launch_bound_share),
        data_share=max(left.data_share, right.data_share),
    )
