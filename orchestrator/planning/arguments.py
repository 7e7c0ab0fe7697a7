"""The training arguments of the installed transformers, and which of them a user may not set.

An axis or the runner decides those. Names are read from the source text of transformers.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.techniques import AXES
from jobs.techniques.axes.activations import RENAMED

_MODEL_TYPES = r"^CONFIG_MAPPING_NAMES\b.*?\n\)"
_MODULES = r"^SPECIAL_MODEL_TYPE_TO_MODULE_NAME\b.*?\n\)"

RUNNER: Mapping[str, str] = {
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
"""Training argument that the user may not set -> why, or what to use instead."""
RUNNER_PREFIXES: Mapping[str, str] = {
    "eval_": "nothing is evaluated during a measurement",
    "save_": "nothing is saved during a measurement",
    "push_to_hub": "nothing is saved during a measurement",
    "hub_": "nothing is saved during a measurement",
    "fsdp": "a trial has one process and one GPU",
    "ddp_": "a trial has one process and one GPU",
}
"""Prefix of arguments that the user may not set -> why."""


def runner_reason(name: str) -> str | None:
    """Why the user may not set a training argument, or what to use instead; None if allowed."""
    if name in RUNNER:
        return RUNNER[name]
    # Some families of arguments have no use in a trial.
    for prefix, reason in RUNNER_PREFIXES.items():
        if name.startswith(prefix):
            return reason
    return None


@functools.cache
def owned_arguments() -> dict[str, str]:
    """Training argument -> the technique axis that sets it."""
    owners: dict[str, str] = {}
    for axis in AXES.values():
        names = set()
        if axis.integer_argument:
            names.add(axis.integer_argument)
        for variant in axis.variants.values():
            names.update(variant.training_arguments)
        # The user may write an argument by its name in a newer transformers.
        names |= {RENAMED[name] for name in names if name in RENAMED}
        # Sorted, because a set has no order and errors list the names.
        owners |= dict.fromkeys(sorted(names), axis.name)
    return owners


def argument_names() -> frozenset[str] | None:
    """Every field of the installed ``TrainingArguments``; None if transformers is not installed.

    A renamed argument is valid under both names.
    """
    defaults = argument_defaults()
    if defaults is None:
        return None
    return frozenset({*defaults, *RENAMED, *RENAMED.values()})


@functools.cache
def argument_defaults() -> dict[str, Any] | None:
    """Every field of the installed ``TrainingArguments`` -> its default.

    The default is ``...`` if it is not a plain value. None if transformers is not installed. The
    source text is read, because importing transformers takes seconds.
    """
    text = source("training_args.py")
    if text is None:
        return None
    # Cut the text before the first method: a class with only its fields parses in milliseconds.
    start = text.index("class TrainingArguments")
    end = text.index("\n    def ", start)
    (fields,) = ast.parse(text[start:end]).body
    assert isinstance(fields, ast.ClassDef)
    defaults: dict[str, Any] = {}
    for statement in fields.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            defaults[statement.target.id] = plain_value(statement.value, unknown=...)
    return defaults


def plain_value(node: ast.expr | None, *, unknown: Any) -> Any:
    """The value of a literal; ``unknown`` for any other expression.

    A call such as ``field(default=0.1)`` or ``interval(min=0.0)(default=0.1)`` has the value of its
    keyword ``default``.
    """
    if isinstance(node, ast.Call):
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        node = keywords.get("default")
    if node is None:
        return unknown
    try:
        return ast.literal_eval(node)
    except ValueError:
        return unknown


def architecture_names() -> frozenset[str] | None:
    """Every ``model_type`` of the installed transformers; None if it is not installed."""
    classes = configuration_classes()
    if classes is None:
        return None
    return frozenset(classes)


@functools.cache
def configuration_classes() -> dict[str, str] | None:
    """Every ``model_type`` of the installed transformers -> the name of its configuration class.

    None if transformers is not installed. The source text is read, as for the arguments.
    """
    classes: dict[str, str] = {}
    for text in _auto_sources():
        for table in re.findall(_MODEL_TYPES, text, re.DOTALL | re.MULTILINE):
            # Entries are ("bert", "BertConfig") or "bert": "BertConfig".
            classes |= dict(re.findall(r'"([\w.-]+)"[,:] *"(\w+Config)"', table))
    return classes or None


@functools.cache
def module_of(model_type: str) -> str:
    """The folder of a model type in ``transformers/models``, mostly of the same name."""
    for text in _auto_sources():
        for table in re.findall(_MODULES, text, re.DOTALL | re.MULTILINE):
            modules: dict[str, str] = dict(re.findall(r'"([\w.-]+)"[,:] *"([\w.-]+)"', table))
            if model_type in modules:
                return modules[model_type].replace("-", "_")
    return model_type.replace("-", "_")


def _auto_sources() -> list[str]:
    # The tables of model types moved from the second file to the first with transformers 5.
    files = ("models/auto/auto_mappings.py", "models/auto/configuration_auto.py")
    return [source(file) or "" for file in files]


@functools.cache
def source(file: str) -> str | None:
    """The text of a file of the installed transformers; None if there is no such file."""
    folder = _package_folder()
    if folder is None or not (folder / file).exists():
        return None
    return (folder / file).read_text(encoding="utf-8")


@functools.cache
def sources(folder: str, pattern: str) -> tuple[str, ...]:
    """The texts of a folder's files whose names match a pattern, by name."""
    package = _package_folder()
    if package is None:
        return ()
    paths = sorted((package / folder).glob(pattern))
    return tuple(path.read_text(encoding="utf-8") for path in paths)


@functools.cache
def _package_folder() -> Path | None:
    # Finds the package without importing it.
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])
