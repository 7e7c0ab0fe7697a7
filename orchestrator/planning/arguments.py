"""Names that the installed transformers knows, and which of them a technique or the runner decides."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from pathlib import Path

from jobs.techniques import AXES
from jobs.techniques.axes.activations import RENAMED

# Training arguments that are not the user's to set, and why, or what to use instead.
RUNNER = {
    "output_dir": 'the runner writes to "output"',
    "max_steps": 'set "measure.steps"',
    "num_train_epochs": 'set "measure.steps", an integer or "epoch"',
    "seed": 'set "measure.seed"',
    "deepspeed": 'write it as the top-level key "deepspeed"',
    "use_cpu": "a trial uses the GPU where its node has one",
    "report_to": "the runner keeps every figure itself",
    "disable_tqdm": "the runner shows the progress",
    "log_level": "the runner keeps each trial's log",
    "auto_find_batch_size": 'sweep the axis "micro_batch"',
    "skip_memory_metrics": "the runner's trackers measure memory without its busy thread",
    "load_best_model_at_end": "nothing is saved during a measurement",
    "resume_from_checkpoint": "a trial starts from the model's own weights",
    "do_train": "a trial trains, and nothing else",
    "do_predict": "a trial trains, and nothing else",
    "do_eval": "a trial trains, and nothing else",
    "local_rank": "a trial has one process and one GPU",
    "parallelism_config": "a trial has one process and one GPU",
    "per_device_eval_batch_size": "nothing is evaluated during a measurement",
}
RUNNER_PREFIXES = {
    "eval_": "nothing is evaluated during a measurement",
    "save_": "nothing is saved during a measurement",
    "push_to_hub": "nothing is saved during a measurement",
    "hub_": "nothing is saved during a measurement",
    "fsdp": "a trial has one process and one GPU",
    "ddp_": "a trial has one process and one GPU",
}


def runner_reason(name: str) -> str | None:
    """Why a training argument is not the user's to set, and what to use instead; None where it is."""
    if name in RUNNER:
        return RUNNER[name]
    return next((why for prefix, why in RUNNER_PREFIXES.items() if name.startswith(prefix)), None)


@functools.cache
def owned_arguments() -> dict[str, str]:
    """Training argument -> the technique axis that sets it."""
    owners: dict[str, str] = {}
    for axis in AXES.values():
        names = {axis.integer_argument} if axis.integer_argument else set()
        names.update(*(variant.training_arguments for variant in axis.variants.values()))
        names |= {RENAMED[name] for name in names if name in RENAMED}
        owners |= dict.fromkeys(sorted(names), axis.name)
    return owners


@functools.cache
def argument_names() -> frozenset[str] | None:
    """Every field of the installed ``TrainingArguments``; None where transformers is not installed.

    Read from the source's text, because importing transformers takes seconds and a config's check must be instant.
    A name is valid if either end of the supported range of versions has it.
    """
    text = _source("training_args.py")
    if text is None:
        return None
    start = text.index("class TrainingArguments")
    # The text before the first method is a class of fields alone, and parses in milliseconds.
    (fields,) = ast.parse(text[start : text.index("\n    def ", start)]).body
    assert isinstance(fields, ast.ClassDef)
    names = {
        f.target.id
        for f in fields.body
        if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)
    }
    return frozenset(names | set(RENAMED) | set(RENAMED.values()))


@functools.cache
def architecture_names() -> frozenset[str] | None:
    """Every ``model_type`` of the installed transformers, read like the arguments; None where it is not installed."""
    found: set[str] = set()
    for file in ("models/auto/auto_mappings.py", "models/auto/configuration_auto.py"):
        for table in re.findall(
            r"^CONFIG_MAPPING_NAMES\b.*?\n\)", _source(file) or "", re.DOTALL | re.MULTILINE
        ):
            found.update(re.findall(r'"([\w.-]+)"[,:] *"\w+Config"', table))
    return frozenset(found) or None


def _source(file: str) -> str | None:
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0], file)
    return path.read_text(encoding="utf-8") if path.exists() else None
