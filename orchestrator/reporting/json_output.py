"""The end of a run as plain JSON values: bytes, seconds, samples per second; what was not measured is null."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from orchestrator.analysis.budgets import Verdict
from orchestrator.analysis.pareto import Point
from orchestrator.analysis.summary import Cohort, Failure, Summary


def to_json(summary: Summary) -> dict[str, Any]:
    """What ``page.text`` prints, whole: no table is thinned out."""
    return {
        "run": summary.run.name,
        "folder": None if summary.folder is None else str(summary.folder),
        "trials": len(summary.rows),
        "outcomes": {outcome.value: number for outcome, number in summary.counts.items()},
        "slot_seconds": summary.busy_seconds,
        "follow_ups": len(summary.follow_ups),
        "follow_up_seconds": summary.follow_up_seconds,
        "search": dict(summary.run.search),
        "hardware": [_cohort(summary, cohort) for cohort in summary.cohorts],
        "not_ok": [_failure(failure) for failure in summary.failures],
        "warnings": [
            {"kind": doubt.kind, "text": doubt.text, "labels": list(doubt.labels)}
            for doubt in summary.doubts
        ],
        "files": [str(path) for path in summary.files],
    }


def _cohort(summary: Summary, cohort: Cohort) -> dict[str, Any]:
    def entry(point: Point | None) -> dict[str, Any] | None:
        return None if point is None else _point(summary, cohort, point)

    return {
        "name": cohort.hardware,
        "environment": dict(cohort.environment),
        "memory_column": cohort.memory_column,
        "points": len(cohort.points),
        "frontier": [entry(point) for point in cohort.front],
        "budgets": [
            {
                "budget_bytes": verdict.budget_bytes,
                "best": entry(verdict.best),
                "seen_to_fit": _seen(verdict),
                "in_turns": [dataclasses.asdict(pairing) for pairing in verdict.pairings],
                "failed": [entry(point) for point in verdict.failed],
                "other_training": entry(verdict.other),
            }
            for verdict in cohort.verdicts
        ],
    }


def _point(summary: Summary, cohort: Cohort, point: Point) -> dict[str, Any]:
    error = point.samples_per_second_ci95
    return {
        "label": summary.label(point),
        "trial_id": point.trial_ids[0],
        "choices": dict(point.choices),
        "training": cohort.training_name(point.training),
        "memory_bytes": point.memory_bytes,
        "samples_per_second": point.samples_per_second,
        "samples_per_second_ci95": error if error is not None and math.isfinite(error) else None,
        "warnings": list(point.warnings),
    }


def _seen(verdict: Verdict) -> dict[str, Any] | None:
    """What the best did under a cap of the budget; None where that it fits is inferred."""
    check = verdict.best and verdict.seen(verdict.best)
    if not check:
        return None
    figures = {"memory_bytes": check.memory_bytes, "samples_per_second": check.samples_per_second}
    return {"trial_id": check.trial_id, "cap_bytes": check.budget_bytes, **figures}


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "outcome": failure.outcome.value,
        "reason": failure.reason,
        "rule": failure.rule,
        "phase": failure.phase,
        "labels": list(failure.labels),
    }
