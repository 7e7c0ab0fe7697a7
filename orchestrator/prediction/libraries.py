"""Imports the traced libraries fast, because imports take most of the time of a prediction."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"


@contextmanager
def quick_imports() -> Iterator[None]:
    """Within it, imports run without the garbage collector, which would visit all imported objects
    again and again, and without three parts that no trace runs: Inductor, with which bitsandbytes
    compiles kernels, torchao, with which transformers reads quantized weights, and SciPy, with
    which it matches detected objects."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        _import_silent_torch()
        import torch

        with patch.object(torch, "compile", not_compiled), suppress(ImportError):
            import bitsandbytes  # noqa: F401
        from transformers import utils

        names = ("is_torchao_available", "is_scipy_available")
        absent: dict[str, Any] = dict.fromkeys(names, lambda *_: False)
        with patch.multiple(utils, **absent):
            yield
    finally:
        gc.freeze()  # libraries stay in memory, so later collections can skip them
        if was_collecting:
            gc.enable()


@contextmanager
def without_gpus() -> Iterator[None]:
    """Within it, PyTorch sees no GPU: a CUDA context would take memory from a measurement there."""
    # PyTorch reads the variable when CUDA is first used. Only this one is restored, because imports
    # may set others.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        yield
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible


def _import_silent_torch() -> None:
    """Import PyTorch with a variable that it reads then alone, without which its engines would warn
    of what a trace leaves out."""
    is_set = _LOG_LEVEL in os.environ
    os.environ.setdefault(_LOG_LEVEL, "ERROR")
    try:
        import torch  # noqa: F401
    finally:
        if not is_set:
            os.environ.pop(_LOG_LEVEL)


def not_compiled(function: Any = None, **_: Any) -> Any:
    """Stands in for ``torch.compile``, with or without arguments, and compiles nothing."""
    return function or (lambda decorated: decorated)
