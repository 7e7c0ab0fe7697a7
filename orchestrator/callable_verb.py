"""Makes the module of a verb callable: ``orchestrator.sweep`` is a module and a function."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any


class _CallableVerb(types.ModuleType):
    """The type of a verb's module, which makes it callable: ``orchestrator.sweep(...)``."""

    @property
    def _function(self) -> Callable[..., Any]:
        # Imported only when it is called, because the command line never needs it.
        api = importlib.import_module("orchestrator.api")
        function: Callable[..., Any] = getattr(api, self.__name__.rpartition(".")[2])
        return function

    @property
    def __signature__(self) -> inspect.Signature:
        """The function's signature, for ``help()`` and editors."""
        return inspect.signature(self._function)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._function(*arguments, **options)


def make_callable(name: str) -> None:
    """Make the module ``name`` callable. A call runs the verb's function in ``orchestrator.api``.

    The function and the module share one name. So ``orchestrator.sweep`` must work as both.
    """
    if name != "__main__":
        sys.modules[name].__class__ = _CallableVerb
