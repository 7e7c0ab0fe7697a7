"""What a trial hands to which library, and what it may use of its node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of a technique, by its name in the registry ``jobs.techniques.hooks``."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


HookPlace = Literal["collator", "batching", "compiler", "kernels", "model", "optimizer", "loop"]
"""Where a trial calls a hook, in this order. ``Hook.arguments`` come as keywords.

- ``collator(collator)`` returns the collator to use.
- ``batching(dataset, collator, attention, tokens)`` returns the dataset and the collator to use;
  ``attention`` is the name of its implementation (empty: the model's own), ``tokens`` the length of
  a sample. The collator may have a function ``count_samples(batch)``, and ``flattens_rows``.
- ``compiler()`` and ``kernels()`` set PyTorch's global state for the process.
- ``model(model, task, arguments)`` returns the model to train; ``arguments`` are the
  ``TrainingArguments``.
- ``optimizer(model, arguments)`` returns a ``torch.optim.Optimizer``.
- ``loop(setup)`` trains, from a ``jobs.loops.base.Setup`` to a ``Trained``.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LibrarySettings:
    """All techniques of a trial merged: what to hand to which library. It names no axes."""

    training_arguments: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``transformers.TrainingArguments``."""
    deepspeed: Mapping[str, Any] | None = None
    """DeepSpeed's configuration; None: train without DeepSpeed."""
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``from_config``/``from_pretrained`` (``dtype``,
    ``attn_implementation``)."""
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    """``HookPlace`` -> the hook called there."""
    requires: tuple[str, ...] = ()
    """Requirements the node must meet, in the syntax of ``jobs.trial.requirements``."""
    builds: tuple[str, ...] = ()
    """DeepSpeed ops to build once per node, before any timing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What a trial reserves on its node, and may use there; not part of its identity."""

    gpus: int = 1
    cpus: int = 0
    """Cores, and the number of OMP threads. 0 is "auto": the GPU's share of the node's cores."""
    host_bytes: int = 0
    """Host memory to reserve; 0 reserves none."""
    nvme_path: str = ""
    """Folder for NVMe offload; empty: the trial's scratch folder."""
