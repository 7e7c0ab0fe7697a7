"""Generates imports of the user's Trainer, callbacks and collator, without copying their source."""

from __future__ import annotations

from typing import Any

from jobs.spec.users_code import UserCode, is_object_name
from jobs.techniques.hooks import service
from orchestrator.export.generated_code import Code, NotExportableError, one_line
from orchestrator.export.source_lifting import lifted

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
