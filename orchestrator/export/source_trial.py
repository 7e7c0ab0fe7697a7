"""Finds the trial of a table's row: from its record, or rebuilt from the table's config."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from jobs.spec import Choice, TrialSpec
from jobs.techniques import AXES
from orchestrator.analysis.dataset import Dataset
from orchestrator.export.generated_code import NotExportableError
from orchestrator.planning.plan import trial_spec
from orchestrator.planning.settings import SweepConfig
from orchestrator.storage.layout import RECORDS
from orchestrator.storage.record_reader import read_record
from orchestrator.storage.tables.columns import PRESENT_TRIAL_ID
from orchestrator.storage.tables.rows import Row


def source_trial(dataset: Dataset, row: Row) -> tuple[TrialSpec, bool]:
    """The trial that a row of a data set was measured from, and whether it certainly is.

    Without a record, it is planned again from the table's config and the row's choices, and is the
    measured one if it has the row's trial id. (Tables of an earlier definition of the id have
    today's in a column of its own.) Raises NotExportableError if the config lacks something.
    """
    # A record holds exactly what ran.
    trial_id = row["trial_id"]
    recorded = _recorded_spec(dataset.folder, trial_id)
    if recorded is not None:
        return recorded, True
    # A skipped row has no GPU model, although it was planned for a GPU. So look at all rows.
    has_gpu = any(other["gpu_model"] for other in dataset.rows)
    try:
        config = SweepConfig.from_json(dataset.run.config)
        planned = trial_spec(_choices(row, dataset.axes), config, has_gpu=has_gpu)
        spec = dataclasses.replace(planned, repeat=row["repeat"])
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise NotExportableError(
            f"{trial_id}: the table's config does not say how it ran ({error!r})"
        ) from error
    # In a sweep over several GPU models, the identity of a trial includes its GPU model.
    with_gpu_model = dataclasses.replace(spec, gpu_model=row["gpu_model"])
    for candidate in (spec, with_gpu_model):
        if candidate.trial_id in (trial_id, row.get(PRESENT_TRIAL_ID.name)):
            return candidate, True
    return spec, False


def _recorded_spec(folder: Path | None, trial_id: str) -> TrialSpec | None:
    if folder is None:
        return None
    record = read_record(folder / RECORDS / f"{trial_id}.json")
    return None if record is None else record.spec


def _choices(row: Row, axes: Mapping[str, str]) -> dict[str, Choice]:
    """A table that is older than an axis has no column for it: its trials ran the default."""
    choices: dict[str, Choice] = {name: axis.default for name, axis in AXES.items()}
    choices |= {axis: row[column] for axis, column in axes.items()}
    for name, axis in AXES.items():
        if axis.takes_integers and str(choices[name]).isdecimal():
            # If a column has names and integers, the integers are stored as text.
            choices[name] = int(str(choices[name]))
    return choices
