"""Records as the rows of the trials table: plain mappings, one a trial."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.record import Column, TrialRecord


def rows_of(records: Sequence[TrialRecord], axes: Mapping[str, Column]) -> list[dict[str, Any]]:
    """A row for each record, in their order; ``axes`` maps each axis to its column (``columns.axis_columns``)."""
    return [
        {**record.measurements, **_base_row(record), **_axis_row(record, axes)}
        for record in records
    ]


def _base_row(record: TrialRecord) -> dict[str, Any]:
    spec = record.spec
    split = spec.choices.get("accumulation")
    # An effective batch that the micro-batch does not divide is planned as a fraction, and never run.
    fraction = split if isinstance(split, float) else None
    return {
        "trial_id": record.trial_id,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "rule": record.rule,
        "phase": record.phase,
        "repeat": spec.repeat,
        "purpose": spec.purpose,
        "follows": spec.follow_up.follows if spec.follow_up else None,
        "among": list(spec.follow_up.among) if spec.follow_up and spec.follow_up.among else None,
        "turn": spec.follow_up.turn if spec.follow_up and spec.follow_up.among else None,
        "memory_cap_bytes": spec.measure.cap.device_bytes if spec.measure.cap else None,
        "equivalence": spec.equivalence,
        "micro_batch": spec.micro_batch,
        "accumulation": spec.accumulation if fraction is None else None,
        "effective_batch": spec.effective_batch
        if fraction is None
        else round(spec.micro_batch * fraction),
        "gpu_model": str(record.environment.get("gpu_model") or ""),
        "environment_id": environment_id(record),
        "started_at": round(record.started_at * 1e6) if record.started_at else None,
        "wall_seconds": record.wall_seconds,
        "isolation": record.isolation,
        "log": record.log,
    }


def _axis_row(record: TrialRecord, axes: Mapping[str, Column]) -> dict[str, Any]:
    own = {
        axis: value
        for axis, value in record.spec.choices.items()
        if axis not in ("micro_batch", "accumulation")
    }
    typed = {axes[axis].name: (value, axes[axis].type) for axis, value in own.items()}
    return {
        name: str(v) if kind == "string" and v is not None else v
        for name, (v, kind) in typed.items()
    }


def environment_id(record: TrialRecord) -> str:
    """A digest of hardware and versions; empty where a record does not know them."""
    if not record.environment:
        return ""
    return hashlib.sha256(
        json.dumps(record.environment, sort_keys=True, default=str).encode()
    ).hexdigest()[:8]
