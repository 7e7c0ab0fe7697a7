"""The folder to train from: every file of an export, written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from jobs.spec import TrialSpec
from orchestrator.analysis.accumulation import Candidate
from orchestrator.api import MeasuredRun
from orchestrator.export import arguments
from orchestrator.export.rebuilt_spec import trial_of
from orchestrator.export.script import readme, train_script
from orchestrator.reporting.recommendation import notes
from orchestrator.units import memory, number

_LIBRARIES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes", "deepspeed")


def export(
    spec: TrialSpec,
    folder: Path,
    *,
    label: str,
    epochs: float = 1,
    peak_bytes: int | None = None,
    measured: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Write what ``spec`` ran to ``folder``; returns the files. Raises NotExportableError before writing anything."""
    settings = arguments.training_arguments(spec, epochs=epochs)
    texts = {
        "train.py": train_script(spec, label, peak_bytes=peak_bytes),
        "README.md": readme(spec, label, measured or {}, notes),
        "training_arguments.yaml": yaml.safe_dump(settings, sort_keys=False),
        "training_arguments.json": json.dumps(settings, indent=2) + "\n",
        "accelerate.yaml": yaml.safe_dump(arguments.accelerate(spec), sort_keys=False),
    }
    if (deepspeed := arguments.deepspeed(spec)) is not None:
        texts[arguments.DEEPSPEED_FILE] = json.dumps(deepspeed, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return tuple(folder / name for name in texts)


def export_candidate(
    run: MeasuredRun, candidate: Candidate, folder: Path, *, epochs: float = 1
) -> tuple[Path, ...]:
    """Write a run's candidate to ``folder``. Raises NotExportableError where it is not known how its row ran."""
    row = candidate.measured.row
    spec, doubt = trial_of(run.folder, row, run.axes, run.run)
    if candidate.inferred:
        spec = arguments.with_accumulation(spec, candidate.accumulation)
    where = run.environments.get(row["environment_id"], {})
    return export(
        spec,
        folder,
        label=f"{run.label(candidate.point)} (trial {row['trial_id']})",
        epochs=epochs,
        peak_bytes=None
        if candidate.inferred or not row["gpu_model"]
        else row.get("peak_allocated_bytes"),
        measured={
            "memory": f"{memory(candidate.measured.memory_bytes)} (`{run.memory_column}`)",
            "speed": f"{number(candidate.measured.samples_per_second)} samples/s",
            "on": run.hardware,
            "with": ", ".join(
                f"{name} {value}" for name, value in where.items() if name in _LIBRARIES
            ),
        },
        notes=[*notes(run, candidate), *([doubt] if doubt else [])],
    )
