"""The trial behind a row: what its record says, or rebuilt from the table and checked by its digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.record import record_from_json
from jobs.spec import DatasetFile, DataSpec, MeasureSpec, ModelSpec, Needs, SyntheticData, TrialSpec
from jobs.techniques import AXES, merge
from orchestrator.analysis.pareto import Row
from orchestrator.storage.run_metadata import RECORDS, Run


class NotExportableError(ValueError):
    """A row that cannot be turned into files; the text says why."""


def trial_of(
    run_folder: Path, row: Row, axes: Mapping[str, str], run: Run
) -> tuple[TrialSpec, str]:
    """The spec that a row of the run's table was measured from, and a doubt in words; "" when there is none.

    Where only the published table was kept, the techniques' rows and the table's config are merged again; the
    digest tells whether that is the same trial. Raises NotExportableError when the config does not say enough.
    """
    trial_id = row["trial_id"]
    for path in (run_folder / RECORDS).glob(f"{trial_id}*.json"):
        return record_from_json(json.loads(path.read_text())).spec, ""
    try:
        spec = _rebuilt(row, axes, run.config)
    except (KeyError, TypeError, ValueError) as error:
        raise NotExportableError(
            f"{trial_id}: the table's config does not say how it ran ({error!r})"
        ) from error
    return spec, "" if spec.trial_id == trial_id else (
        f"rebuilt from the table of trial {trial_id} by a version that would run it as {spec.trial_id}: "
        "techniques or settings have changed since, compare the files with what you know of the run"
    )


def _rebuilt(row: Row, axes: Mapping[str, str], config: Mapping[str, Any]) -> TrialSpec:
    choices = {
        axis: row[axes[axis]] for axis in (*AXES, *(axis for axis in axes if axis not in AXES))
    }
    variants = [axis.variant(choices[name]) for name, axis in AXES.items()]
    own = {
        axis: value for axis, value in choices.items() if axis not in AXES and value != "default"
    }
    deepspeed = (
        config["deepspeed"] if any(variant.deepspeed is not None for variant in variants) else None
    )
    measure = dict(config["measure"])
    if not row["gpu_model"]:
        measure |= {name: config["cpu"][name] for name in ("warmup_steps", "steps")}
    return TrialSpec(
        choices=choices,
        model=ModelSpec(**config["model"]),
        data=_data(config["data"]),
        recipe=merge(variants, {**config["training_arguments"], **own}, deepspeed),
        measure=MeasureSpec(**measure),
        needs=Needs(
            gpus=int(bool(row["gpu_model"])), nvme_path=config["resources"]["nvme_path"] or ""
        ),
        repeat=row["repeat"],
        equivalence=row["equivalence"],
    )


def _data(raw: Mapping[str, Any]) -> DataSpec:
    synthetic, file = raw["synthetic"], raw["file"]
    return DataSpec(
        synthetic=SyntheticData(**synthetic) if synthetic else None,
        file=DatasetFile(**file) if file else None,
    )
