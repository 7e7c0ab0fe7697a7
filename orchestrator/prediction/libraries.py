"""How a rehearsal's libraries are imported: most of what a single prediction takes is that."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import inside without the collector, which would walk through all that is there again and again, and without
    what no rehearsal runs: Inductor, with which bitsandbytes compiles kernels, and torchao, with which transformers
    reads weights that it quantized."""
    collected = gc.isenabled()
    gc.disable()
    try:
        import torch

        with patch.object(torch, "compile", _as_it_is), suppress(ImportError):
            import bitsandbytes  # noqa: F401
        from transformers import utils

        with patch.object(utils, "is_torchao_available", lambda *_: False):
            yield
    finally:
        gc.freeze()  # libraries stay: later collections need not look at them
        if collected:
            gc.enable()


@contextmanager
def without_gpus() -> Iterator[None]:
    """Hide the machine's GPUs from what is imported inside: PyTorch would open a context on one, where it takes memory
    from whoever measures there, and a rehearsal is one without a GPU."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        yield
    finally:
        if seen is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = seen


def _as_it_is(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    return function or (lambda decorated: decorated)
