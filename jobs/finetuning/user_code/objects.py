"""Imports the user's own objects and checks their types. Only the command line can ask for that."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.finetuning.user_code.sources import SourceError, file_of, source_digest
from jobs.spec import UserCode
from jobs.spec.users_code import is_object_name

if TYPE_CHECKING:
    from jobs.loops.trainer import Metered


class UserCodeError(ValueError):
    """The user's own code cannot be used. The message is one sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UserObjects:
    """The objects that a trial uses; None or empty: the library's own."""

    trainer: type | None = None
    callbacks: tuple[Any, ...] = ()
    collator: Callable[..., Any] | None = None
    entry: Callable[..., Any] | None = None

    @property
    def computes_the_loss(self) -> bool:
        """Whether the loss is that of a Trainer of the user's own."""
        return bool(self.trainer or self.entry)

    def collator_for(self, tokenizer: Any) -> Callable[..., Any] | None:
        """The function that makes batches; None: the library's own."""
        if self.collator is None:
            return None
        return collator_of(self.collator, tokenizer)

    def trainer_of(self, parts: Mapping[str, Any], default: type, **attributes: Any) -> Metered:
        """The Trainer that the user's own class or function makes of the parts, metered.

        ``default`` is the class if the user gives none. ``attributes`` are those of the metered
        subclass. Raises UserCodeError if the class is no subclass of the default, or if the Trainer
        trains another model or with other arguments.
        """
        from jobs.loops.trainer import metered

        kind = self.trainer or default
        given = {**parts, "callbacks": list(self.callbacks)}
        trainer: Any
        if not issubclass(kind, default):
            raise UserCodeError(
                f"this loop needs a subclass of {default.__name__}, not {kind.__name__}"
            )
        if self.entry is None:
            trainer = metered(kind, **attributes)(**given)
        else:
            trainer = called_with(self.entry, given)
            if not isinstance(trainer, default):
                raise UserCodeError(
                    f"{self.entry.__name__} returned a {type(trainer).__name__}, not a "
                    f"{default.__name__}"
                )
            trainer.__class__ = metered(type(trainer), **attributes)
        for name in ("model", "args"):
            if getattr(trainer, name) is not parts[name]:
                raise UserCodeError(
                    f"the Trainer has another {name} than the one that it was given, so the trial "
                    "would not measure what its row says"
                )
        return trainer


def user_objects(user_code: UserCode) -> UserObjects:
    """Import the objects, which runs their modules. Raises UserCodeError for a module that is not
    the plan's or cannot be imported, and for an object of the wrong type."""
    _check_sources(user_code)
    # As for a script, modules beside it come first.
    if user_code.folder and user_code.folder not in sys.path:
        sys.path.insert(0, user_code.folder)
    objects = {name: _imported(name, user_code.folder) for name in user_code.names}
    _check_kinds(user_code, objects)
    return UserObjects(
        trainer=objects.get(user_code.trainer),
        callbacks=tuple(objects[name] for name in user_code.callbacks),
        collator=objects.get(user_code.collator),
        entry=objects.get(user_code.entry),
    )


def _check_kinds(user_code: UserCode, objects: Mapping[str, Any]) -> None:
    import transformers

    wanted: list[tuple[str, type]] = [
        *((name, transformers.TrainerCallback) for name in user_code.callbacks),
        *((name, transformers.Trainer) for name in (user_code.trainer,) if name),
    ]
    for name, kind in wanted:
        value = objects[name]
        # A callback may be an object of its class, too.
        is_object = kind is transformers.TrainerCallback and isinstance(value, kind)
        if not is_object and not (isinstance(value, type) and issubclass(value, kind)):
            raise UserCodeError(f"{name} is {_kind(value)}, and no subclass of {kind.__name__}")
    for name in (user_code.collator, user_code.entry):
        if name and not callable(objects[name]):
            raise UserCodeError(f"{name} is {_kind(objects[name])}, which cannot be called")


def collator_of(collator: Callable[..., Any], tokenizer: Any) -> Callable[..., Any]:
    """The function that makes batches: the user's own, or an object of the user's own class. A
    class is called with the tokenizer, if it takes one by this name."""
    import inspect

    if not isinstance(collator, type):
        return collator
    takes_tokenizer = "tokenizer" in inspect.signature(collator).parameters
    return collator(tokenizer=tokenizer) if takes_tokenizer else collator()


def called_with(function: Callable[..., Any], parts: Mapping[str, Any]) -> Any:
    """The result of a function, called with those of the parts that it takes by name."""
    import inspect

    parameters = inspect.signature(function).parameters
    takes_all = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    given = {name: part for name, part in parts.items() if takes_all or name in parameters}
    return function(**given)


def _check_sources(user_code: UserCode) -> None:
    # A spec may come from a record that was edited by hand, so everything in it is checked.
    for name in user_code.names:
        if not is_object_name(name):
            raise UserCodeError(f"{name!r} is not of the form module:object")
    try:
        current = source_digest(user_code)
    except SourceError as error:
        raise UserCodeError(str(error)) from None
    if current != user_code.digest:
        raise UserCodeError(
            f"the source of {', '.join(user_code.names)} is not the one that this trial was "
            "planned with"
        )


def _imported(name: str, folder: str) -> Any:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UserCodeError(
            f"{name}: importing {module_name} raised {type(error).__name__}: {error}"
        ) from error
    expected = file_of(module_name, folder)
    actual = getattr(module, "__file__", None)
    # Another module of this name may have been imported before.
    if expected is None or actual is None or not Path(actual).samefile(expected):
        raise UserCodeError(f"{name}: the name {module_name} is that of another module, {actual}")
    if not hasattr(module, attribute):
        raise UserCodeError(f"{name}: {expected} defines no {attribute}")
    return getattr(module, attribute)


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"an object of the class {type(value).__name__}"
