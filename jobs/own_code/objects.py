"""Imports the user's own objects and checks their types. Only the command line can ask for that."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.own_code.sources import SourceError, digest, file_of
from jobs.spec.own_code import OwnCode, is_object_name


class OwnCodeError(ValueError):
    """The user's own code cannot be used. The message is one sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnObjects:
    """The objects that a trial uses; None or empty: the library's own."""

    trainer: type | None = None
    callbacks: tuple[Any, ...] = ()
    collator: Callable[..., Any] | None = None
    entry: Callable[..., Any] | None = None


def load(own: OwnCode) -> OwnObjects:
    """Import the objects, which runs their modules.

    Raises OwnCodeError if the sources are not those of the plan, if a module cannot be imported, or
    if an object has the wrong type.
    """
    _check_sources(own)
    # As for a script, modules beside it come first.
    if own.folder and own.folder not in sys.path:
        sys.path.insert(0, own.folder)
    objects: dict[str, Any] = {name: _imported(name, own.folder) for name in own.names}
    _check_kinds(own, objects)
    return OwnObjects(
        trainer=objects.get(own.trainer),
        callbacks=tuple(objects[name] for name in own.callbacks),
        collator=objects.get(own.collator),
        entry=objects.get(own.entry),
    )


def _check_kinds(own: OwnCode, objects: Mapping[str, Any]) -> None:
    """Raises OwnCodeError if an object has the wrong type for its key, such as ``trainer``."""
    import transformers

    for name in own.callbacks:
        _check_kind(name, objects[name], transformers.TrainerCallback, may_be_object=True)
    if own.trainer:
        _check_kind(own.trainer, objects[own.trainer], transformers.Trainer)
    for name in (own.collator, own.entry):
        if name and not callable(objects[name]):
            raise OwnCodeError(f"{name} is {_kind(objects[name])}, which cannot be called")


def collator_of(collator: Callable[..., Any], tokenizer: Any) -> Callable[..., Any]:
    """The function that makes batches: the user's own, or an object of the user's own class.

    A class is called with the tokenizer, if it takes one by this name.
    """
    import inspect

    if not isinstance(collator, type):
        return collator
    made: Callable[..., Any]
    if "tokenizer" in inspect.signature(collator).parameters:
        made = collator(tokenizer=tokenizer)
    else:
        made = collator()
    return made


def called_with(function: Callable[..., Any], parts: Mapping[str, Any]) -> Any:
    """The result of a function, called with those of the parts that it takes by name."""
    import inspect

    parameters = inspect.signature(function).parameters
    takes_all = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    given = {name: part for name, part in parts.items() if takes_all or name in parameters}
    return function(**given)


def _check_sources(own: OwnCode) -> None:
    # A spec may come from a record that was edited by hand, so everything in it is checked.
    for name in own.names:
        if not is_object_name(name):
            raise OwnCodeError(f"{name!r} is not of the form module:object")
    try:
        current = digest(own)
    except SourceError as error:
        raise OwnCodeError(str(error)) from None
    if current != own.digest:
        raise OwnCodeError(
            f"the source of {', '.join(own.names)} is not the one that this trial was planned with"
        )


def _imported(name: str, folder: str) -> Any:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise OwnCodeError(
            f"{name}: importing {module_name} raised {type(error).__name__}: {error}"
        ) from error
    expected = file_of(module_name, folder)
    actual = getattr(module, "__file__", None)
    # Another module of this name may have been imported before.
    if expected is None or actual is None or not Path(actual).samefile(expected):
        raise OwnCodeError(f"{name}: the name {module_name} is that of another module, {actual}")
    if not hasattr(module, attribute):
        raise OwnCodeError(f"{name}: {expected} defines no {attribute}")
    return getattr(module, attribute)


def _check_kind(name: str, value: Any, wanted: type, *, may_be_object: bool = False) -> None:
    is_class = isinstance(value, type) and issubclass(value, wanted)
    if is_class or (may_be_object and isinstance(value, wanted)):
        return
    raise OwnCodeError(f"{name} is {_kind(value)}, and no subclass of {wanted.__name__}")


def _kind(value: Any) -> str:
    """What an object is, for a sentence."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"an object of the class {type(value).__name__}"
