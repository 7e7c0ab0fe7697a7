"""What one trial has to run: a ``TrialSpec``, plain data that travels as JSON."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Task = Literal[
    "sequence-classification",
    "token-classification",
    "causal-lm",
    "masked-lm",
    "seq2seq-lm",
    "image-classification",
]
Isolation = Literal["fork", "fresh"]
Purpose = Literal["search", "budget", "comparison", "anatomy"]
"""What a trial is for: the search's own; else it sees whether a configuration fits a budget, which of a few is the
fastest, measured in turns, or where its memory and time go."""
Choice = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """The model to build: an architecture config with random weights, or a checkpoint by name or path."""

    task: Task
    architecture: str | None = None
    """A transformers ``model_type`` ("bert", "llama", "vit" ...); weights are random."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of the architecture's own configuration class."""
    name_or_path: str | None = None
    """A checkpoint for ``from_pretrained``; exclusive with ``architecture``."""
    trust_remote_code: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticData:
    """Random samples of the task's right shape. ``padding`` is the share of a text's positions that are padding."""

    sequence_length: int = 512
    samples: int = 512
    padding: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFile:
    """The user's own local dataset, loaded through ``datasets``."""

    path: str
    format: Literal["parquet", "json", "csv", "arrow", "disk"]
    columns: Mapping[str, str] = field(default_factory=dict)
    """Our name -> theirs: ``text`` (and ``text_pair``, ``target``), ``labels``, ``input_ids``, ``pixel_values`` ..."""
    tokenizer: str | None = None
    """A tokenizer's name or folder; not needed when the file already holds ``input_ids``."""
    max_length: int = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSpec:
    """Exactly one of ``synthetic`` and ``file``."""

    synthetic: SyntheticData | None = None
    file: DatasetFile | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryCap:
    """A smaller GPU played by a larger one, its allocator capped: what a trial may take, context and libraries too."""

    device_bytes: int
    outside_bytes: int = 0
    """What context and libraries took beside the allocator when the configuration ran uncapped; at least what the
    trial measures of its own context counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureSpec:
    """How long and how carefully to measure.

    ``steps`` counts optimizer steps after ``warmup_steps``; None means one whole epoch, the guides' way. Fewer are
    run when the speed is known to within ``relative_error`` before, or would not be after all of them (95 %
    confidence; 0: never stop early).
    """

    warmup_steps: int = 2
    steps: int | None = 10
    relative_error: float = 0.0
    deadline_seconds: float = 300.0
    seed: int = 42
    inspect: bool = True
    isolation: Isolation = "fork"
    anatomy: bool = False
    """Take the trial apart after its counted steps: where the memory and the time went (``jobs.anatomy``)."""
    cap: MemoryCap | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowUp:
    """Which finished trial a trial looks at again, and why."""

    follows: str
    """That trial's id."""
    purpose: Purpose
    among: tuple[str, ...] = ()
    """The trials that are compared, this one's included: all their turns are one slot's, one after another."""
    turn: int = 0
    """How often each of them had its turn before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What a trial reserves on its node, and may use there; not part of its identity."""

    gpus: int = 1
    cpus: int = 0
    """Cores, also its OMP threads; 0 is "auto": its GPU's share of the node."""
    host_bytes: int = 0
    """Host memory to reserve; 0 reserves none."""
    nvme_path: str = ""
    """Folder for NVMe offload; empty: the trial's scratch folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """All techniques of a trial merged: what to hand to which library. The job reads this and knows no axis."""

    training_arguments: Mapping[str, Any] = field(default_factory=dict)
    deepspeed: Mapping[str, Any] | None = None
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``from_config``/``from_pretrained`` (``dtype``, ``attn_implementation``)."""
    hooks: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Place -> ("module:function", keyword arguments), in the order in which the places are come to:

    "collator", "compiler", "kernels", "model", "optimizer", "loop". "compiler" and "kernels" are called with nothing
    and set what PyTorch keeps for the process.
    """
    requires: tuple[str, ...] = ()
    """Requirements the node must meet, in the words of ``jobs.node.requirements``."""
    prepares: tuple[str, ...] = ()
    """One-time costs paid once per node before timing: DeepSpeed ops to build."""


_OFF = (("anatomy", False), ("cap", None), ("follow_up", None), ("gpu_model", ""))
"""Younger than the first tables: a trial without them keeps its name."""


class _Digested:
    """Room for a digest beside the fields, which are compared, copied and written without it."""

    __slots__ = ("_trial_id",)
    _trial_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSpec(_Digested):
    """One trial, whole. ``trial_id`` is a digest of everything that can change its result."""

    choices: Mapping[str, Choice]
    """Axis -> the variant chosen, every axis of the sweep included."""
    model: ModelSpec
    data: DataSpec
    recipe: Recipe
    measure: MeasureSpec = field(default_factory=MeasureSpec)
    needs: Needs = field(default_factory=Needs)
    repeat: int = 0
    equivalence: str = "exact"
    """Trials with equal ``equivalence`` train the same way (effective batch, optimizer family, adapter)."""
    follow_up: FollowUp | None = None
    """None: a trial of the search's own."""
    gpu_model: str = ""
    """The one kind of GPU that may run it, where a sweep has several; empty: whichever there is."""

    @property
    def trial_id(self) -> str:
        """Twelve hexadecimal digits, the same for the same work on any machine."""
        try:
            known = self._trial_id
        except AttributeError:
            known = self._digest()
            object.__setattr__(
                self, "_trial_id", known
            )  # asked for all the time, and slow to compute
        return known

    def _digest(self) -> str:
        whole = to_json(self)
        content = {
            k: v
            for k, v in whole.items()
            if k not in ("needs", "equivalence") and (k, v) not in _OFF
        }
        measure = content["measure"].items()
        content["measure"] = {
            k: v for k, v in measure if k != "deadline_seconds" and (k, v) not in _OFF
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def purpose(self) -> Purpose:
        """What the trial is for."""
        return self.follow_up.purpose if self.follow_up else "search"

    @property
    def micro_batch(self) -> int:
        """Samples per forward pass."""
        return int(self.recipe.training_arguments.get("per_device_train_batch_size", 8))

    @property
    def accumulation(self) -> int:
        """Forward passes per optimizer step."""
        return int(self.recipe.training_arguments.get("gradient_accumulation_steps", 1))

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return self.micro_batch * self.accumulation


_PLAIN = (str, int, float, bool)


def to_json(value: Any) -> Any:
    """Dataclasses, mappings and tuples as plain JSON values."""
    if value is None or type(value) in _PLAIN:
        return value
    if names := _field_names(value.__class__):
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


def spec_from_json(raw: Mapping[str, Any]) -> TrialSpec:
    """The inverse of ``to_json`` for a ``TrialSpec``. Raises TypeError on unknown fields."""
    data, recipe = raw["data"], dict(raw["recipe"])
    recipe["hooks"] = {place: (path, kwargs) for place, (path, kwargs) in recipe["hooks"].items()}
    for name in ("requires", "prepares"):
        recipe[name] = tuple(recipe[name])
    cap, follow_up = raw["measure"].get("cap"), raw.get("follow_up")
    nested = {
        "model": ModelSpec(**raw["model"]),
        "data": DataSpec(
            synthetic=SyntheticData(**data["synthetic"]) if data["synthetic"] else None,
            file=DatasetFile(**data["file"]) if data["file"] else None,
        ),
        "recipe": Recipe(**recipe),
        "measure": MeasureSpec(**{**raw["measure"], "cap": MemoryCap(**cap) if cap else None}),
        "needs": Needs(**raw["needs"]),
        "follow_up": FollowUp(**{**follow_up, "among": tuple(follow_up["among"])})
        if follow_up
        else None,
    }
    return TrialSpec(**{**raw, **nested})
