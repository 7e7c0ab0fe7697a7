"""What a trial hands to which library, and what it may use of its node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of a technique, by its name in the registry ``jobs.techniques.hooks``."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


DataPlace = Literal["rows", "preferences", "collator", "batching"]
ProcessPlace = Literal["compiler", "partitioner", "kernels"]
_LayersPlace = Literal["layers", "linears", "rounding", "loss", "vision"]
ModelPlace = Literal[_LayersPlace, "trained", "model", "checkpointing", "regions"]
_OtherPlace = Literal["arguments", "base", ModelPlace, "optimizer", "loop"]
HookPlace = Literal["allocator", DataPlace, ProcessPlace, _OtherPlace]
"""Where a trial calls a hook, in this order. ``Hook.arguments`` come as keywords.

- ``allocator()`` sets up the allocator of the GPU before it holds any memory.
- ``rows(data, config, samples, seed, batching)`` returns the dataset and the collator to use, in
  place of ``collator`` and ``batching``; ``batching`` is the name of the hook there (empty: none),
  and the others are as for ``jobs.trial.data.load``.
- ``preferences`` does the same as ``rows`` for a loop that trains on pairs of answers.
- ``collator(collator)`` returns the collator to use.
- ``batching(dataset, collator, attention, tokens)`` returns the dataset and the collator to use;
  ``attention`` is the name of its implementation (empty: the model's own), ``tokens`` the length of
  a sample. The collator may have a function ``count_samples(batch)``, ``flattens_rows``, and
  ``samples_of_rows``, if a row of the dataset is not one sample.
- ``compiler()``, ``partitioner()`` and ``kernels()`` set PyTorch's global state for the process.
- ``arguments(fields, batching)`` returns the ``TrainingArguments``, or an object of a subclass.
- ``base(make, is_checkpoint, device)`` returns the model on its device; ``make(**more)`` is
  ``from_pretrained`` or, without a checkpoint, ``from_config``.
- ``layers``, ``linears``, ``rounding``, ``loss``, ``vision``, ``trained``, ``model``,
  ``checkpointing`` and ``regions``, each as ``place(model, task, arguments)``, return the model to
  train, in this order: with other layers, other linear layers, linear layers that round their
  weights, another loss, a frozen vision tower, other frozen weights, an adapter, checkpointing or
  offloading, compiled regions. ``arguments`` are the ``TrainingArguments``.
- ``optimizer(model, arguments)`` returns a ``torch.optim.Optimizer``.
- ``loop(setup)`` trains, from a ``jobs.loops.contract.Setup`` to a ``Trained``.
"""

PROCESS_PLACES: tuple[HookPlace, ...] = get_args(ProcessPlace)
"""Places of hooks that set the state of the process, before the model is built."""
MODEL_PLACES: tuple[HookPlace, ...] = get_args(ModelPlace)
"""Places of hooks that change the model, once it is built."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LibrarySettings:
    """All techniques of a trial merged: what to hand to which library. It names no axes."""

    training_arguments: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``transformers.TrainingArguments``."""
    deepspeed: Mapping[str, Any] | None = None
    """DeepSpeed's configuration; None: train without DeepSpeed."""
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of ``from_config``/``from_pretrained`` (``dtype``, ``attn_implementation``)."""
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
    """Host memory to reserve. 0 is "auto": the GPU's share of the node's memory."""
    nvme_path: str = ""
    """Folder for NVMe offload; empty: the trial's scratch folder."""
