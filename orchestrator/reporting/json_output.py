"""A report as plain JSON values: bytes, seconds, samples per second; null: not measured."""

from typing import Any

from pydantic_core import to_jsonable_python

from jobs.spec import to_json as plain
from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.reporting.report import Report


def to_json(report: Report) -> dict[str, Any]:
    """The run's head, then every section under its name, whole: no table is shortened."""
    dataset = report.dataset
    return strict(
        {
            "run": dataset.name,
            "folder": None if dataset.folder is None else str(dataset.folder),
            "finished": dataset.run.finished,
            "trials": len(dataset.rows),
            "outcomes": {outcome.value: number for outcome, number in report.outcomes.items()},
            "slot_seconds": report.slot_seconds,
            "follow_ups": len(dataset.follow_ups),
            "follow_up_slot_seconds": report.follow_up_slot_seconds,
            "search": dataset.run.search,
            # Sections stand under their environment, those of the run at the top level.
            "environments": [
                {
                    "environment_id": results.environment_id,
                    "hardware": results.hardware,
                    "memory_column": results.memory_column,
                    "training_recipe": results.recipe,
                    "is_baseline_recipe": results.is_baseline_recipe,
                    "configurations": len(results.configurations),
                    **_sections(report, results),
                }
                for results in dataset.environments
            ],
            **_sections(report, None),
            "files": list(map(str, report.files)),
        }
    )


def _sections(report: Report, environment: EnvironmentResults | None) -> dict[str, Any]:
    """The sections of one environment by their names; None: those of the whole run. A section has
    its sentences, and each table's rows under the table's name."""
    return {
        part.section.name: {
            "title": part.content.title,
            "text": part.content.text,
            "notes": part.content.notes,
            **{table.name: table.rows for table in part.content.tables},
        }
        for part in report.parts
        if part.environment is environment
    }


def strict(value: Any) -> Any:
    """Plain values that every JSON parser reads: figures that are not finite become null."""
    return to_jsonable_python(plain(value), inf_nan_mode="null")
