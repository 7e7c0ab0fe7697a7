"""The distinct configurations of recorded runs: what was trained, whichever run measured it."""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.flags import SHARED, flags_of, has_any
from jobs.record import Outcome
from jobs.spec import TrialSpec
from jobs.techniques import AXES
from orchestrator.analysis.dataset import Dataset
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.recorded.runs import dataset_of, folders_below
from tests.benchmarks.recorded.shared_gpu import shared_rows

_TRAINED = ("model", "data", "deepspeed", "training_arguments")
"""Sections of a configuration that decide the memory of its trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRow:
    """A row that says what memory a configuration takes: ok, or out of memory."""

    group: str
    """The model and data that it shares with other rows (``group_name``)."""
    row: Row
    versions: tuple[str, str]
    """torch and transformers."""


def recorded_runs(folder: Path) -> Iterator[Dataset]:
    """Every run below a folder, in the order of their paths."""
    return map(dataset_of, folders_below([folder]))


def measured_rows(dataset: Dataset) -> Iterator[MeasuredRow]:
    """The rows of a run, without those of a GPU that other processes used."""
    group = group_name(dataset.run)
    # Old rows carry no flag of another process, so today's check is run on all of them.
    shared = shared_rows(dataset.rows)
    for row in dataset.rows:
        if row["outcome"] not in (Outcome.OK, Outcome.OUT_OF_MEMORY):
            continue
        if row["trial_id"] in shared or has_any(flags_of(row), SHARED):
            continue
        environment = dataset.table.environments.get(row["environment_id"], {})
        versions = (environment.get("torch", ""), environment.get("transformers", ""))
        yield MeasuredRow(group=group, row=row, versions=versions)


def group_name(run: RunMetadata) -> str:
    """A name for the model, the data and the arguments of a run: equal where these are."""
    text = json.dumps(_trained(run), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    model: Mapping[str, Any] = run.config.get("model", {})
    return f"{model.get('architecture') or model.get('name_or_path')}-{digest}"


def identity(choices: Row) -> tuple[str, ...]:
    """Equal for rows and choices of the same configuration of a group.

    An axis that a run did not have yet is at its default.
    """
    values = []
    for name, axis in AXES.items():
        value = choices.get(name)
        values.append(str(axis.default if value is None else value))
    return tuple(values)


def planned_again(runs: Iterable[Dataset]) -> Iterator[tuple[str, list[TrialSpec]]]:
    """Each group of the runs, with the trials of its distinct configurations."""
    documents: dict[str, Mapping[str, Any]] = {}
    choices: dict[str, dict[tuple[str, ...], Row]] = {}
    for dataset in runs:
        for measured in measured_rows(dataset):
            documents[measured.group] = _trained(dataset.run)
            by_identity = choices.setdefault(measured.group, {})
            by_identity.setdefault(identity(measured.row), _choices_of(measured.row))
    for group, document in documents.items():
        yield group, _trials({**document, "trials": list(choices[group].values())})


def _choices_of(row: Row) -> Row:
    return {axis: row[axis] for axis in AXES if row.get(axis) is not None}


def _trained(run: RunMetadata) -> dict[str, Any]:
    """The sections of a run's configuration that decide memory, without empty keys."""
    sections = {}
    for name in _TRAINED:
        section = run.config.get(name)
        if isinstance(section, Mapping):
            section = {key: value for key, value in section.items() if value is not None}
        if section:
            sections[name] = section
    return sections


def _trials(document: Mapping[str, Any]) -> list[TrialSpec]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recorded.yaml")
        path.write_text(yaml.safe_dump(dict(document)), encoding="utf-8")
        return list(plan(load_config(path)).trials)
