"""train.py and its README, rendered from templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from jobs.spec import DatasetFile, Hook, SyntheticData, Task, TrialSpec
from jobs.tasks import AUTO_CLASSES
from jobs.techniques.axes.optimizer import decay_groups
from jobs.techniques.hooks import UnknownHookError, registered
from orchestrator.export.generated_code import (
    Code,
    NotExportableError,
    arguments,
    dtype,
    keyword_argument,
    keywords,
    literal,
    name,
    one_line,
)
from orchestrator.export.source_lifting import lifted

_LOOPS = {"trainer_loop": "trainer", "accelerate_loop": "accelerate"}
"""Hook of a loop -> how the templates write it."""
_COLLATORS: Mapping[Task, str] = {
    "token-classification": "DataCollatorForTokenClassification(tokenizer)",
    "causal-lm": "DataCollatorForLanguageModeling(tokenizer, mlm=False)",
    "masked-lm": "DataCollatorForLanguageModeling(tokenizer, mlm=True)",
    "seq2seq-lm": "DataCollatorForSeq2Seq(tokenizer)",
}
_DEFAULT_COLLATOR = "DataCollatorWithPadding(tokenizer)"
_HOOK_INPUTS: Mapping[str, tuple[str, ...]] = {
    "collator": ("collator or transformers.default_data_collator",),
    "compiler": (),
    "kernels": (),
    "model": ("model", "TASK", "arguments"),
    "optimizer": ("model", "arguments"),
}
"""Where a hook is called -> the names in train.py that it gets; TASK is the task's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _HookCode:
    """A hook in train.py: its functions, and the call."""

    source: Code
    call: Code


def train_script(spec: TrialSpec, label: str, *, peak_bytes: int | None = None) -> str:
    """The text of train.py; it prints its peak beside ``peak_bytes``, the row's.

    Raises NotExportableError for a hook whose code cannot stand alone, and for a value that is no
    plain literal.
    """
    return _render(
        "train.py.j2",
        {
            **_facts(spec),
            **_model(spec),
            "label": one_line(label),
            "hooks": _hook_codes(spec),
            "file": _file(spec.data.file),
            "synthetic": _synthetic(spec.data.synthetic),
            "collator": Code(_COLLATORS.get(spec.model.task, _DEFAULT_COLLATOR)),
            "decay_groups": lifted(decay_groups),
            "peak_bytes": None if peak_bytes is None else literal(int(peak_bytes)),
        },
    )


def readme(spec: TrialSpec, label: str, measured: Mapping[str, str], notes: Sequence[str]) -> str:
    """The text of README.md: ``measured`` are figures by name, ``notes`` sentences."""
    return _render(
        "README.md.j2",
        {
            **_facts(spec),
            "label": one_line(label),
            "hooks": spec.settings.hooks,
            "measured": _checked_lines(measured),
            "notes": list(map(one_line, notes)),
        },
    )


def _checked_lines(texts: Mapping[str, str]) -> dict[Code, Code]:
    return {one_line(key): one_line(value) for key, value in texts.items()}


def _render(template: str, context: Mapping[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("orchestrator.export", ""),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        finalize=_only_code,
    )
    return environment.get_template(template).render(context)


def _only_code(value: Any) -> Code:
    """What a template may print: nothing that was not made safe first."""
    if not isinstance(value, Code):
        raise NotExportableError(f"a template prints {value!r}, which is not checked")
    return value


def _facts(spec: TrialSpec) -> dict[str, Any]:
    """What both templates branch on."""
    loop = spec.settings.hooks.get("loop", Hook("trainer_loop"))
    if loop.name not in _LOOPS:
        raise NotExportableError(f"the loop {loop.name} is known to this project only")
    return {
        "task": spec.model.task,
        "loop": _LOOPS[loop.name],
        "uses_deepspeed": spec.settings.deepspeed is not None,
        "accumulates": spec.accumulation > 1,
        "accumulation": literal(spec.accumulation),
    }


def _model(spec: TrialSpec) -> dict[str, Any]:
    """How the model and its configuration are made."""
    model = spec.model
    if model.task not in AUTO_CLASSES:
        raise NotExportableError(f"{model.task!r} is not a task")
    if "trust_remote_code" in {**model.config, **spec.settings.model_kwargs}:
        raise NotExportableError("trust_remote_code is given as an argument of the model")
    if model.name_or_path is not None:
        trust = keyword_argument("trust_remote_code", literal(bool(model.trust_remote_code)))
        checkpoint = literal(model.name_or_path)
        for_config = [checkpoint, trust]
        for_model = [checkpoint, Code("config=config"), trust]
    else:
        for_config = [literal(model.architecture)]
        for_model = [Code("config")]
    return {
        "auto_class": Code(AUTO_CLASSES[model.task]),
        "is_checkpoint": model.name_or_path is not None,
        "config_arguments": arguments([*for_config, *keywords(model.config)]),
        "model_arguments": arguments([*for_model, *_model_keywords(spec.settings.model_kwargs)]),
    }


def _model_keywords(kwargs: Mapping[str, Any]) -> list[Code]:
    """Keyword arguments of ``from_config``; the dtype becomes torch's object."""
    others = {key: value for key, value in kwargs.items() if key != "dtype"}
    own_dtype = dtype(kwargs.get("dtype", "float32"))
    return [keyword_argument("dtype", own_dtype), *keywords(others)]


def _hook_codes(spec: TrialSpec) -> dict[str, _HookCode]:
    """Place -> the hook that train.py calls there; the loop is written by a template."""
    codes = {}
    for place, hook in spec.settings.hooks.items():
        if place in _HOOK_INPUTS:
            codes[place] = _hook_code(place, hook, spec.model.task)
        elif place != "loop":
            raise NotExportableError(f"{place!r} is not a place where train.py calls a hook")
    return codes


def _hook_code(place: str, hook: Hook, task: Task) -> _HookCode:
    try:
        function = registered(hook.name)
    except UnknownHookError as error:
        raise NotExportableError(str(error)) from None
    inputs = [literal(task) if word == "TASK" else Code(word) for word in _HOOK_INPUTS[place]]
    call = arguments([*inputs, *keywords(hook.arguments)])
    function_name = name(function.__name__)
    return _HookCode(source=lifted(function), call=Code(f"{function_name}({call})"))


def _file(file: DatasetFile | None) -> dict[str, Any] | None:
    if file is None:
        return None
    return {
        "is_folder": file.format == "disk",
        "format": literal(file.format),
        "path": literal(file.path),
        "columns": literal(dict(file.columns)) if file.columns else None,
        "tokenizer": literal(file.tokenizer) if file.tokenizer else None,
        "max_length": literal(int(file.max_length)),
    }


def _synthetic(synthetic: SyntheticData | None) -> dict[str, Any] | None:
    if synthetic is None:
        return None
    padding = float(synthetic.padding)
    return {
        "samples": literal(int(synthetic.samples)),
        "sequence_length": literal(int(synthetic.sequence_length)),
        "real_share": literal(1 - padding),
        "is_padded": padding > 0,
    }
