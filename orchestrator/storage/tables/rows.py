"""The trials table as rows of plain values: one dict per trial, column -> value."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.record import Column, TrialRecord
from jobs.spec import Purpose, TrainingRecipe, to_json
from jobs.techniques import AXES, BATCH_AXES

Row = Mapping[str, Any]
"""One row of the trials table."""


def row_of(record: TrialRecord, axes: Mapping[str, Column]) -> dict[str, Any]:
    """One record's row, with the columns of ``axes``."""
    return {
        **record.measurements,
        **_identity(record),
        **_batch(record),
        **_follow_up(record),
        **_provenance(record),
        **_axis_values(record, axes),
    }


def is_of_the_search(row: Row) -> bool:
    """Whether a row is of a trial of the search; follow-ups check others and are never ranked."""
    return row.get("purpose") in (None, Purpose.SEARCH)


def recipe_of(row: Row) -> TrainingRecipe:
    return _recipe_of_text(row["training_recipe"])


@functools.lru_cache(maxsize=1024)
def _recipe_of_text(text: str) -> TrainingRecipe:
    # A table of thousands of rows has few recipes. A recipe is frozen, so rows can share it.
    return TrainingRecipe.of(json.loads(text))


def environment_id(environment: Mapping[str, Any]) -> str:
    """A hash of the hardware and versions of a record; empty if it has none."""
    # The record of a trial that never ran has no machine.
    if not environment:
        return ""
    text = json.dumps(environment, sort_keys=True, default=str)
    # Eight hexadecimal digits are 32 bits, enough for the few environments of a run.
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _identity(record: TrialRecord) -> dict[str, Any]:
    return {
        "trial_id": record.trial_id,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "rule": record.rule,
        "phase": record.phase,
        "repeat": record.spec.repeat,
        "training_recipe": json.dumps(to_json(record.spec.training_recipe), sort_keys=True),
        "gpu_model": str(record.environment.get("gpu_model") or ""),
        "environment_id": environment_id(record.environment),
    }


def _batch(record: TrialRecord) -> dict[str, Any]:
    spec = record.spec
    batch: dict[str, Any] = {
        "micro_batch": spec.micro_batch,
        "accumulation": spec.accumulation,
        "effective_batch": spec.effective_batch,
    }
    planned = spec.choices.get("accumulation")
    if isinstance(planned, float):
        # The micro-batch does not divide the effective batch, so the plan has a fraction, and rules
        # the trial out. The product, without the fraction's rounding error, is the effective batch.
        batch["accumulation"] = None
        batch["effective_batch"] = round(spec.micro_batch * planned * spec.world_size)
    return batch


def _follow_up(record: TrialRecord) -> dict[str, Any]:
    spec = record.spec
    row: dict[str, Any] = {"purpose": spec.purpose.value}
    if spec.measure.memory_cap:
        row["memory_cap_bytes"] = spec.measure.memory_cap.device_bytes
    if spec.follow_up:
        row["follows_trial"] = spec.follow_up.follows_trial
        # Only tie-breaks compare several trials, round by round.
        if spec.follow_up.compared_with:
            row["compared_with"] = list(spec.follow_up.compared_with)
            row["round"] = spec.follow_up.round
    return row


def _provenance(record: TrialRecord) -> dict[str, Any]:
    provenance = record.provenance
    has_started = provenance.started_at > 0
    # The slot time outside the counted steps: start, model, warm-up, inspection and end.
    overhead_seconds = provenance.slot_seconds - record.measurements.get("counted_seconds", 0.0)
    return {
        # Arrow's timestamps are whole microseconds.
        "started_at": round(provenance.started_at * 1e6) if has_started else None,
        "slot_seconds": provenance.slot_seconds,
        "overhead_seconds": overhead_seconds if has_started else None,
        "isolation": provenance.isolation,
        "isolation_fallback": provenance.isolation_fallback or None,
        "node": provenance.node or None,
        "cpus": provenance.cpus,
        "host_memory_bytes": provenance.host_memory_bytes,
        "log": provenance.log,
        "log_file": provenance.log_file or None,
    }


def _axis_values(record: TrialRecord, axes: Mapping[str, Column]) -> dict[str, Any]:
    # A record of another sweep may lack an argument: its value is then None. A record that is older
    # than a technique's axis ran the default.
    values: dict[str, Any] = {}
    for axis, column in axes.items():
        if axis in BATCH_AXES:
            continue
        default = AXES[axis].default if axis in AXES else None
        value = record.spec.choices.get(axis, default)
        # The column of an argument with values of several types holds text.
        if column.type == "string" and value is not None:
            value = str(value)
        values[column.name] = value
    return values
