"""A report as plain JSON values: bytes, seconds, samples per second; null: not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jobs.spec import to_json as plain
from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.reporting.content import Content
from orchestrator.reporting.report import Report


def to_json(report: Report) -> dict[str, Any]:
    """The run's head, then every section under its name, whole: no table is shortened."""
    dataset = report.dataset
    of_the_run = {
        part.section.name: _section(part.content)
        for part in report.parts
        if part.environment is None
    }
    head = {
        "run": dataset.name,
        "folder": None if dataset.folder is None else str(dataset.folder),
        "finished": dataset.run.finished,
        "trials": len(dataset.rows),
        "outcomes": {outcome.value: number for outcome, number in report.outcomes.items()},
        "slot_seconds": report.slot_seconds,
        "follow_ups": len(dataset.follow_ups),
        "follow_up_slot_seconds": report.follow_up_slot_seconds,
        "search": dataset.run.search,
        "environments": [_environment(report, results) for results in dataset.environments],
        **of_the_run,
        "files": [str(path) for path in report.files],
    }
    document: dict[str, Any] = strict(head)
    return document


def _environment(report: Report, results: EnvironmentResults) -> dict[str, Any]:
    sections = {
        part.section.name: _section(part.content)
        for part in report.parts
        if part.environment is results
    }
    return {
        "environment_id": results.environment_id,
        "hardware": results.hardware,
        "memory_column": results.memory_column,
        "training_recipe": results.recipe,
        "is_baseline_recipe": results.is_baseline_recipe,
        "configurations": len(results.configurations),
        **sections,
    }


def _section(content: Content) -> dict[str, Any]:
    """Its sentences, and each table's rows under the table's name."""
    sentences = {"title": content.title, "text": content.text, "notes": content.notes}
    return {**sentences, **{table.name: table.rows for table in content.tables}}


def strict(value: Any) -> Any:
    """Plain values that every JSON parser reads: figures that are not finite become null."""
    return _finite(plain(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
