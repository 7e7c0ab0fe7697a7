"""The registry of hooks: functions that techniques need beyond settings, each under a name.

A trial's spec carries the name, never a module path. So a file can move without renaming a trial. A
spec from a shared run folder can call nothing but what is registered here.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

from jobs.spec import Hook, HookPlace, TrialSpec

F = TypeVar("F", bound=Callable[..., Any])
"""The function that a decorator leaves as it is."""

MODULES_VARIABLE = "ORCHESTRATOR_HOOK_MODULES"
"""Environment variable of a node: comma-separated modules to import, which register more hooks."""

_MODULES = ("jobs.techniques", "jobs.loops.hooks")
"""Modules that register hooks when they are imported."""
_HOOKS: dict[str, Callable[..., Any]] = {}


class UnknownHookError(KeyError):
    """No hook is registered under this name."""


def hook(name: str) -> Callable[[F], F]:
    """A decorator that registers a function under a name. Raises ValueError if the name is taken.

    The function must stand alone: it imports what it needs inside itself, and uses nothing else
    but names defined in its own module. ``orchestrator.export`` copies its source.
    """

    def register(function: F) -> F:
        """Put the function into the registry; returns it as it is."""
        if name in _HOOKS and _HOOKS[name].__module__ != function.__module__:
            raise ValueError(f"two hooks are named {name}")
        _HOOKS[name] = function
        return function

    return register


def registered(name: str) -> Callable[..., Any]:
    """The function of this name. Raises UnknownHookError if there is none."""
    # Importing a module registers its hooks. Modules that are imported already stay as they are.
    added = os.environ.get(MODULES_VARIABLE, "")
    for module in (*_MODULES, *filter(None, added.split(","))):
        importlib.import_module(module)
    if name not in _HOOKS:
        raise UnknownHookError(f'no hook is named "{name}"')
    return _HOOKS[name]


def bound(spec: TrialSpec, place: HookPlace) -> Callable[..., Any] | None:
    """The function that a trial calls at a place, with its arguments filled in; None: no hook."""
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
