"""The registry of hooks: named functions for techniques that need more than settings.

A trial's spec has the name of a hook, never a module path. So its id stays the same if a function
moves to another file, and a spec from a shared run folder can only call registered functions.
"""

import functools
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jobs.spec import Hook, HookPlace, TrialSpec

F = TypeVar("F", bound=Callable[..., Any])

MODULES_VARIABLE = "ORCHESTRATOR_HOOK_MODULES"
"""Environment variable of a node: comma-separated modules to import, which register more hooks."""

_HOOKS: dict[str, Callable[..., Any] | str] = {}
"""Name -> function; until a slow module is imported, the ``module:function`` in it."""
_SERVICES: dict[str, Callable[..., Any] | str] = {}


class UnknownHookError(KeyError):
    """No hook is registered under this name."""


def hook(name: str) -> Callable[[F], F]:
    """A decorator that registers a function under a name. Raises ValueError if the name is taken.
    ``orchestrator.export`` copies the source of the function. So the function does its imports
    itself, and otherwise uses only names that are defined in its own module."""

    def register(function: F) -> F:
        known = _HOOKS.get(name, function)
        if isinstance(known, str) or known.__module__ != function.__module__:
            raise ValueError(f"two hooks are named {name}")
        _HOOKS[name] = function
        return function

    return register


def hooks_of(module: str, functions: Mapping[str, str]) -> None:
    """Register functions, by hook, of a module that is imported when one of them is asked for."""
    _HOOKS.update((name, f"{module}:{function}") for name, function in functions.items())


def services_of(module: str, *functions: str) -> None:
    """Register functions that plans, trials and exports ask for. A spec cannot name them."""
    _SERVICES.update((name, f"{module}:{name}") for name in functions)


def registered(name: str) -> Callable[..., Any]:
    """The hook of this name. Raises UnknownHookError if there is none."""
    return _found(_HOOKS, name)


def service(name: str) -> Callable[..., Any]:
    """The function that a wing of the program offers under this name."""
    return _found(_SERVICES, name)


def _found(table: dict[str, Callable[..., Any] | str], name: str) -> Callable[..., Any]:
    added = os.environ.get(MODULES_VARIABLE, "")
    for module in ("jobs.techniques", *filter(None, added.split(","))):
        importlib.import_module(module)
    if name not in table:
        raise UnknownHookError(f'no hook is named "{name}"')
    found = table[name]
    if isinstance(found, str):
        module, _, function = found.partition(":")
        found = table[name] = getattr(importlib.import_module(module), function)
    return found


def bound(spec: TrialSpec, place: HookPlace) -> Callable[..., Any] | None:
    """The hook of a trial at a place, with the arguments from its spec; None if it has no hook."""
    chosen: Hook | None = spec.settings.hooks.get(place)
    if chosen is None:
        return None
    return functools.partial(registered(chosen.name), **chosen.arguments)


def hook_name(spec: TrialSpec, place: HookPlace) -> str:
    """The name of the hook that a trial has at a place; empty if it has none."""
    chosen: Hook | None = spec.settings.hooks.get(place)
    return chosen.name if chosen else ""
