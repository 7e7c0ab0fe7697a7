"""Verbs that are functions, too: ``orchestrator.sweep`` is a module, and can be called."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any


class _CallableVerb(types.ModuleType):
    """The module of a verb, which is a function as well: ``orchestrator.sweep(...)``."""

    @property
    def _function(self) -> Callable[..., Any]:
        # Imported when called: the command line has no use for it.
        api = importlib.import_module("orchestrator.api")
        function: Callable[..., Any] = getattr(api, self.__name__.rpartition(".")[2])
        return function

    @property
    def __signature__(self) -> inspect.Signature:
        """The function's, for help and editors."""
        return inspect.signature(self._function)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._function(*arguments, **options)


def make_callable(name: str) -> None:
    """Let the module of a verb be called as the function of its name in ``orchestrator.api``.

    The function and the module have one name, and the import of either must find both.
    """
    if name != "__main__":
        sys.modules[name].__class__ = _CallableVerb
