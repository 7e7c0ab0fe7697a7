"""How the traced libraries are imported: imports take most of the time of a single prediction."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import inside without the garbage collector, and without what no trace runs.

    The collector would walk through everything again and again. Left out are Inductor, with which
    bitsandbytes compiles kernels, and torchao, with which transformers reads quantized weights.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        import torch

        with patch.object(torch, "compile", _uncompiled), suppress(ImportError):
            import bitsandbytes  # noqa: F401
        from transformers import utils

        with patch.object(utils, "is_torchao_available", _is_not_available):
            yield
    finally:
        gc.freeze()  # libraries stay: later collections need not look at them
        if was_collecting:
            gc.enable()


@contextmanager
def without_gpus() -> Iterator[None]:
    """Hide the machine's GPUs from what is imported inside.

    PyTorch would open a context on one, and take memory from a measurement that runs there.
    """
    # The variable is read when CUDA is first asked about, so it is restored afterwards.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        yield
    finally:
        if visible is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible


def _uncompiled(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """``torch.compile`` as a decorator, with or without arguments, that compiles nothing."""
    if function is None:
        return _unchanged
    return function


def _unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _is_not_available(*_: Any) -> bool:
    return False
