"""The folder to train from: every file of an export, written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from jobs.spec import TrialSpec
from orchestrator.results.export import arguments
from orchestrator.results.export.script import readme, train_script


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
