"""train.py and its README, rendered from templates."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from jobs.spec import TrialSpec
from jobs.spec.library_settings import MODEL_PLACES, PROCESS_PLACES
from jobs.spec.users_code import UserCode, is_object_name
from jobs.techniques.axes.loop import enable_checkpointing, label_shares
from jobs.techniques.axes.optimizer import decay_groups
from jobs.techniques.hooks import UnknownHookError, hook_name, registered, service
from orchestrator.export import trl_code
from orchestrator.export.generated_code import (
    Code,
    NotExportableError,
    arguments,
    keywords,
    literal,
    name,
    one_line,
)
from orchestrator.export.model_and_data_code import data_code, model_code
from orchestrator.export.source_lifting import lifted

_LOOPS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "trainer_loop": ("trainer", "transformers.TrainingArguments", ()),
    "accelerate_loop": ("accelerate", "transformers.TrainingArguments", ()),
    trl_code.SFT: ("trl_sft", "trl.SFTConfig", ("rows", "arguments", "batching")),
    trl_code.PREFERENCE: ("trl_preference", "trl.DPOConfig", ("preferences", "arguments")),
}
"""A loop's hook -> the loop in the templates, the class of its arguments, and the places whose work
the loop does itself."""


def train_script(spec: TrialSpec, label: str, *, peak_bytes: int | None = None) -> str:
    """The text of train.py. It prints its peak memory beside ``peak_bytes``, the row's peak. Raises
    NotExportableError if a hook's code cannot stand alone, or a value is no plain literal."""
    return _render(
        "train.py.j2",
        {
            **_facts(spec),
            **model_code(spec),
            **data_code(spec.data, spec.model),
            **trl_code.trl_code(spec),
            **own_code(spec.own_code),
            "label": one_line(label),
            "hooks": _hook_codes(spec),
            "process_places": ("allocator", *PROCESS_PLACES),
            "model_places": MODEL_PLACES,
            "decay_groups": lifted(decay_groups),
            "enable_checkpointing": lifted(enable_checkpointing),
            "label_shares": lifted(label_shares),
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
            "is_on_cpu": not spec.needs.gpus,
        },
    )


def _render(template: str, context: Mapping[str, Any]) -> str:
    return _templates().get_template(template).render(context)


@functools.cache
def _templates() -> jinja2.Environment:
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
    loop, arguments_class, _ = _loop(spec)
    return {
        "loop": loop,
        "arguments_class": Code(arguments_class),
        "uses_deepspeed": spec.settings.deepspeed is not None,
        "is_on_one_gpu": spec.world_size == 1,
        "world_size": literal(int(spec.world_size)),
    }


def _loop(spec: TrialSpec) -> tuple[str, str, tuple[str, ...]]:
    """A spec without a loop uses the Trainer's."""
    loop = hook_name(spec, "loop") or "trainer_loop"
    if loop not in _LOOPS:
        raise NotExportableError(f"the loop {loop} is known to this project only")
    return _LOOPS[loop]


def _hook_codes(spec: TrialSpec) -> dict[str, dict[str, Code]]:
    """Place -> the ``source`` of the functions that train.py calls there, and the ``call``."""
    codes = {}
    inputs = _hook_inputs(spec)
    *_, done_by_loop = _loop(spec)
    for place, hook in spec.settings.hooks.items():
        if place in ("loop", *done_by_loop):
            continue  # a template has the loop
        if place not in inputs:
            raise NotExportableError(f"{place!r} is not a place where train.py calls a hook")
        # A spec has only the name of a hook. The registry decides which function that is.
        try:
            function = registered(hook.name)
        except UnknownHookError as error:
            raise NotExportableError(str(error)) from None
        call = arguments([*inputs[place], *keywords(hook.arguments)])
        source = lifted(function)
        codes[place] = {"source": source, "call": Code(f"{name(function.__name__)}({call})")}
    return codes


def _hook_inputs(spec: TrialSpec) -> dict[str, tuple[Code, ...]]:
    """Place of a hook -> its first arguments: values, or names in train.py."""
    collator = Code("collator or transformers.default_data_collator")
    attention = str(spec.settings.model_kwargs.get("attn_implementation", ""))
    batching = keywords({"attention": attention, "tokens": spec.data.tokens})
    of_model = (Code("model"), literal(spec.model.task), Code("arguments"))
    is_checkpoint = literal(spec.model.name_or_path is not None)
    return {
        "allocator": (),
        "collator": (collator,),
        "batching": (Code("dataset"), collator, *batching),
        **dict.fromkeys(PROCESS_PLACES, ()),
        "base": (Code("make"), is_checkpoint, Code("device")),
        **dict.fromkeys(MODEL_PLACES, of_model),
        "optimizer": (Code("model"), Code("arguments")),
    }


def own_code(own: UserCode | None) -> dict[str, Any]:
    """The values that the templates need. An empty value stands for the library's class. Raises
    NotExportableError for a name that is not ``module:object``, because names become code."""
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
        "collator_of": lifted(service("collator_of")),
        "called_with": lifted(service("called_with")),
    }
