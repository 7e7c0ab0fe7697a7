"""The registry of hooks: named functions for techniques that need more than settings.

A trial's spec has the name of a hook, never a module path. So a function can move to another file
and the id of the trial stays the same. A spec from a shared run folder can only call registered
functions.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

from jobs.spec import Hook, HookPlace, TrialSpec

F = TypeVar("F", bound=Callable[..., Any])
"""The type of the decorated function, which the decorator does not change."""

MODULES_VARIABLE = "ORCHESTRATOR_HOOK_MODULES"
"""Environment variable of a node: comma-separated modules to import, which register more hooks."""

_MODULES = ("jobs.techniques", "jobs.loops.hooks")
"""Modules that register hooks when they are imported."""
_HOOKS: dict[str, Callable[..., Any]] = {}


class UnknownHookError(KeyError):
    """No hook is registered under this name."""


def hook(name: str) -> Callable[[F], F]:
    """A decorator that registers a function under a name. Raises ValueError if the name is taken.

    ``orchestrator.export`` copies the source of the function. So the function does its imports
    itself, and otherwise uses only names that are defined in its own module.
    """

    def register(function: F) -> F:
        """Add the function to the registry, and return it unchanged."""
        if name in _HOOKS and _HOOKS[name].__module__ != function.__module__:
            raise ValueError(f"two hooks are named {name}")
        _HOOKS[name] = function
        return function

    return register


def registered(name: str) -> Callable[..., Any]:
    """The function of this name. Raises UnknownHookError if there is none."""
    # Importing a module registers its hooks. A module that is already imported is not run again.
    added = os.environ.get(MODULES_VARIABLE, "")
    for module in (*_MODULES, *filter(None, added.split(","))):
        importlib.import_module(module)
    if name not in _HOOKS:
        raise UnknownHookError(f'no hook is named "{name}"')
    return _HOOKS[name]


def bound(spec: TrialSpec, place: HookPlace) -> Callable[..., Any] | None:
    """The hook of a trial at a place, with the arguments from its spec; None if it has no hook."""
    chosen: Hook | None = spec.settings.hooks.get(place)
    if chosen is None:
        return None
    return functools.partial(registered(chosen.name), **chosen.arguments)


def hook_name(spec: TrialSpec, place: HookPlace) -> str:
    """The name of the hook that a trial has at a place; empty if it has none."""
    chosen: Hook | None = spec.settings.hooks.get(place)
    if chosen is None:
        return ""
    return chosen.name
