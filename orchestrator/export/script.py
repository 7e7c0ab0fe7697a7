"""train.py and its README, rendered from templates."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from jobs.spec import Hook, TrialSpec
from jobs.spec.library_settings import MODEL_PLACES, PROCESS_PLACES
from jobs.spec.users_code import UserCode, is_object_name
from jobs.techniques.axes.optimizer import decay_groups
from jobs.techniques.hooks import UnknownHookError, hook_name, registered, service
from orchestrator.export.data_code import data_code
from orchestrator.export.generated_code import (
    Code,
    NotExportableError,
    arguments,
    keywords,
    literal,
    name,
    one_line,
)
from orchestrator.export.model_code import model_code
from orchestrator.export.source_lifting import lifted
from orchestrator.export.trl import preference_code, sft_code

_LOOPS = {
    "trainer_loop": "trainer",
    "accelerate_loop": "accelerate",
    sft_code.LOOP: "trl_sft",
    preference_code.LOOP: "trl_preference",
}
"""Name of a loop's hook -> the name of the loop in the templates."""
_OWN_PLACES = {
    sft_code.LOOP: ("rows", "arguments", "batching"),
    preference_code.LOOP: ("preferences", "arguments"),
}
"""Name of a loop's hook -> places whose work TRL does itself."""
_ARGUMENTS = {
    "trainer": "transformers.TrainingArguments",
    "accelerate": "transformers.TrainingArguments",
    "trl_sft": "trl.SFTConfig",
    "trl_preference": "trl.DPOConfig",
}
"""Name of a loop in the templates -> the class of its arguments."""
_HOOK_INPUTS: Mapping[str, tuple[str, ...]] = {
    "allocator": (),
    "collator": ("collator or transformers.default_data_collator",),
    "batching": ("dataset", "collator or transformers.default_data_collator", "BATCHING"),
    **dict.fromkeys(PROCESS_PLACES, ()),
    "base": ("make", "IS_CHECKPOINT", "device"),
    **dict.fromkeys(MODEL_PLACES, ("model", "TASK", "arguments")),
    "optimizer": ("model", "arguments"),
}
"""Place of a hook -> the names in train.py that are its arguments.

TASK is the task's name, IS_CHECKPOINT whether the model has a checkpoint, and BATCHING the
attention and the length that batches are made for.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _HookCode:
    """A hook in train.py: the source of its functions, and the code that calls it."""

    source: Code
    call: Code


def train_script(spec: TrialSpec, label: str, *, peak_bytes: int | None = None) -> str:
    """The text of train.py. It prints its peak memory beside ``peak_bytes``, the row's peak.

    Raises NotExportableError if the code of a hook cannot stand alone, or if a value is not a plain
    literal.
    """
    return _render(
        "train.py.j2",
        {
            **_facts(spec),
            **model_code(spec),
            **data_code(spec.data, spec.model),
            **sft_code.sft_code(spec),
            **preference_code.preference_code(spec),
            **own_code(spec.own_code),
            "label": one_line(label),
            "hooks": _hook_codes(spec),
            "process_places": ("allocator", *PROCESS_PLACES),
            "model_places": MODEL_PLACES,
            "decay_groups": lifted(decay_groups),
            "peak_bytes": None if peak_bytes is None else literal(int(peak_bytes)),
        },
    )


def readme(spec: TrialSpec, label: str, measured: Mapping[str, str], notes: Sequence[str]) -> str:
    """The text of README.md. ``measured`` maps names to measurements; ``notes`` are sentences."""
    return _render(
        "README.md.j2",
        {
            **_facts(spec),
            "label": one_line(label),
            "hooks": spec.settings.hooks,
            "measured": {one_line(key): one_line(value) for key, value in measured.items()},
            "notes": list(map(one_line, notes)),
            "is_synthetic": spec.data.file is None,
            "has_random_weights": spec.model.name_or_path is None,
            "asks_for_remote_code": model_code(spec)["asks_for_remote_code"],
            **own_code(spec.own_code),
            "evaluates_and_saves": spec.measure.evaluate_and_save,
        },
    )


def _render(template: str, context: Mapping[str, Any]) -> str:
    return _templates().get_template(template).render(context)


@functools.cache
def _templates() -> jinja2.Environment:
    """The templates of the exported files, compiled once for a process."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("orchestrator.export", ""),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        finalize=_only_code,
    )


def _only_code(value: Any) -> Code:
    """Let a template print only ``Code``, which was made safe before."""
    if not isinstance(value, Code):
        raise NotExportableError(f"a template prints {value!r}, which is not checked")
    return value


def _facts(spec: TrialSpec) -> dict[str, Any]:
    """The values that the conditions in both templates read."""
    # A spec without a loop uses the Trainer's.
    loop = spec.settings.hooks.get("loop", Hook("trainer_loop"))
    if loop.name not in _LOOPS:
        raise NotExportableError(f"the loop {loop.name} is known to this project only")
    return {
        "loop": _LOOPS[loop.name],
        "arguments_class": Code(_ARGUMENTS[_LOOPS[loop.name]]),
        "uses_deepspeed": spec.settings.deepspeed is not None,
    }


def _hook_codes(spec: TrialSpec) -> dict[str, _HookCode]:
    """Place -> the hook that train.py calls there. The loop is left out: a template has it."""
    codes = {}
    own = _OWN_PLACES.get(hook_name(spec, "loop"), ())
    for place, hook in spec.settings.hooks.items():
        if place in own:
            continue  # TRL's own code does this, as the settings ask
        if place in _HOOK_INPUTS:
            codes[place] = _hook_code(place, hook, spec)
        elif place != "loop":
            raise NotExportableError(f"{place!r} is not a place where train.py calls a hook")
    return codes


def _hook_code(place: str, hook: Hook, spec: TrialSpec) -> _HookCode:
    # A spec has only the name of a hook. The registry decides which function that is.
    try:
        function = registered(hook.name)
    except UnknownHookError as error:
        raise NotExportableError(str(error)) from None
    call = arguments([*_hook_inputs(place, spec), *keywords(hook.arguments)])
    function_name = name(function.__name__)
    return _HookCode(source=lifted(function), call=Code(f"{function_name}({call})"))


def _hook_inputs(place: str, spec: TrialSpec) -> list[Code]:
    """The first arguments of a hook at this place: values, or names in the script."""
    model = spec.model
    facts = {"TASK": model.task, "IS_CHECKPOINT": model.name_or_path is not None}
    inputs: list[Code] = []
    for word in _HOOK_INPUTS[place]:
        if word == "BATCHING":
            attention = str(spec.settings.model_kwargs.get("attn_implementation", ""))
            inputs += keywords({"attention": attention, "tokens": spec.data.tokens})
        elif word in facts:
            inputs.append(literal(facts[word]))
        else:
            inputs.append(Code(word))
    return inputs


_TRAINER = Code("AccumulatingTrainer")
"""The Trainer of train.py if the user names none."""


def own_code(own: UserCode | None) -> dict[str, Any]:
    """The values that the templates need. An empty value stands for the library's class.

    Raises NotExportableError for a name that is not ``module:object``, because names become code.
    """
    own = own or UserCode()
    for text in own.names:
        if not is_object_name(text):
            raise NotExportableError(f"{text!r} is not of the form module:object")
    aliases = {text: Code(f"own_{index}") for index, text in enumerate(dict.fromkeys(own.names))}
    imports = []
    for text, alias in aliases.items():
        module, _, attribute = text.partition(":")
        imports.append(Code(f"from {module} import {attribute} as {alias}"))
    return {
        "own_names": one_line(", ".join(aliases)),
        "own_imports": imports,
        "own_trainer": aliases.get(own.trainer, Code("")),
        "own_collator": aliases.get(own.collator, Code("")),
        "own_entry": aliases.get(own.entry, Code("")),
        "own_callbacks": Code(", ".join(aliases[text] for text in own.callbacks)),
        "accumulating_trainer": _TRAINER,
        "collator_of": lifted(service("collator_of")),
        "called_with": lifted(service("called_with")),
    }
