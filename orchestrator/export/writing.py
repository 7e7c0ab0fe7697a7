"""The folder to train from: every file of an export, written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from jobs.spec import TrialSpec
from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.dataset import Dataset
from orchestrator.export import arguments
from orchestrator.export.rebuilt_spec import SourceTrial, source_trial
from orchestrator.export.script import readme, train_script
from orchestrator.reporting.recommendation_notes import notes
from orchestrator.storage.tables.rows import Row
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
    """Write what ``spec`` ran to ``folder``; returns the files.

    Raises NotExportableError before it writes anything.
    """
    settings = arguments.training_arguments(spec, epochs=epochs)
    deepspeed = arguments.deepspeed(spec)
    texts = {
        "train.py": train_script(spec, label, peak_bytes=peak_bytes),
        "README.md": readme(spec, label, measured or {}, notes),
        "training_arguments.yaml": yaml.safe_dump(settings, sort_keys=False),
        "training_arguments.json": json.dumps(settings, indent=2) + "\n",
        "accelerate.yaml": yaml.safe_dump(arguments.accelerate(spec), sort_keys=False),
    }
    if deepspeed is not None:
        texts[arguments.DEEPSPEED_FILE] = json.dumps(deepspeed, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return tuple(folder / name for name in texts)


def export_candidate(
    dataset: Dataset, candidate: Candidate, folder: Path, *, epochs: float = 1
) -> tuple[Path, ...]:
    """Write the files to train a candidate with; returns them.

    Raises NotExportableError where it is not known how its row ran.
    """
    row = candidate.measured.row
    source = source_trial(dataset, row)
    spec = source.spec
    if candidate.is_inferred:
        spec = arguments.with_accumulation(spec, candidate.accumulation)
    label = dataset.label(candidate.configuration.choices)
    return export(
        spec,
        folder,
        label=f"{label} (trial {row['trial_id']})",
        epochs=epochs,
        peak_bytes=_peak_bytes(candidate),
        measured=_measured(dataset, candidate),
        notes=[*notes(dataset, candidate), *_warnings(source, row)],
    )


def _peak_bytes(candidate: Candidate) -> int | None:
    """The row's peak, where the exported training should reach the same."""
    row = candidate.measured.row
    if candidate.is_inferred or not row["gpu_model"]:
        return None
    peak: int | None = row.get("peak_allocated_bytes")
    return peak


def _measured(dataset: Dataset, candidate: Candidate) -> dict[str, str]:
    """The row's figures in words, by name."""
    configuration = candidate.measured
    results = dataset.environment_of(configuration.environment_id)
    environment = results.environment if results else {}
    versions = [f"{name} {environment[name]}" for name in _LIBRARIES if name in environment]
    column = results.memory_column if results else "memory"
    return {
        "memory": f"{memory(configuration.memory_bytes)} ({column})",
        "speed": f"{number(configuration.samples_per_second)} samples/s",
        "on": results.hardware if results else "unknown hardware",
        "with": ", ".join(versions),
    }


def _warnings(source: SourceTrial, row: Row) -> list[str]:
    """What to check before training with the files, a sentence each."""
    warnings = []
    if not source.is_checked:
        warnings.append(
            f"rebuilt from the table: this version would run trial {row['trial_id']} as "
            f"{source.spec.trial_id}. Techniques or settings have changed since; compare the files "
            "with what you know of the run"
        )
    if source.spec.model.trust_remote_code:
        warnings.append("train.py runs code that the checkpoint brings (trust_remote_code)")
    return warnings
