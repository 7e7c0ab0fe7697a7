"""What one trial has to run: a ``TrialSpec``, plain data that travels as JSON."""

from __future__ import annotations

import dataclasses
import enum
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
Choice = str | int | float | bool | None
"""The value chosen on one axis."""


class Purpose(enum.StrEnum):
    """Why a trial is run. Only trials of the search are ranked; the others check them."""

    SEARCH = "search"
    CAP_CHECK = "cap_check"
    """A pick again, its GPU's memory capped to the budget: does it fit?"""
    TIE_BREAK = "tie_break"
    """Close configurations again, interleaved on one GPU: which is faster?"""
    PROFILE = "profile"
    """A configuration again, to see where its memory and time go."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """The model: an architecture with random weights, or a checkpoint by name or path."""

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
    """Random samples of the task's shape; ``padding`` is the share of padded positions."""

    sequence_length: int = 512
    samples: int = 512
    padding: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFile:
    """The user's own local dataset, loaded through ``datasets``."""

    path: str
    format: Literal["parquet", "json", "csv", "arrow", "disk"]
    columns: Mapping[str, str] = field(default_factory=dict)
    """Our name -> theirs: ``text`` (``text_pair``, ``target``), ``labels``, ``input_ids`` ..."""
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
    """A smaller GPU, simulated on a larger one by capping PyTorch's allocator."""

    device_bytes: int
    """All that the trial may take, its CUDA context and libraries included."""
    non_allocator_bytes: int = 0
    """What context and libraries took when the configuration ran uncapped. The allocator gets the
    rest; the trial's own context counts if it is larger."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureSpec:
    """How long and how carefully to measure."""

    warmup_steps: int = 2
    """Optimizer steps that never count."""
    steps: int | None = 10
    """Optimizer steps that count, at most; None: one whole epoch, as the Hugging Face guides do."""
    relative_error: float = 0.0
    """Stop early once the mean step is known to within this (95 % confidence), or cannot be; 0:
    never."""
    timeout_seconds: float = 300.0
    """Not part of the trial's identity."""
    seed: int = 42
    inspect: bool = True
    """Read the effective configuration back from the live objects."""
    isolation: Isolation = "fork"
    profile: bool = False
    """Break memory and time down after the counted steps (``jobs.anatomy``)."""
    memory_cap: MemoryCap | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowUp:
    """Which finished trial a trial measures again, and why."""

    follows_trial: str
    """That trial's id."""
    purpose: Purpose
    compared_with: tuple[str, ...] = ()
    """Ids of the trials that a tie-break compares, this one's included. One slot runs all their
    rounds in a row."""
    round: int = 0
    """Rounds of the tie-break before this one."""


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


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """The choices that change what a training learns: optimizer family, adapter, learning rate ...

    Trials with equal recipes and equal effective batch train the same way. The plain recipe is
    empty.
    """

    choices: frozenset[tuple[str, Choice]] = frozenset()

    @classmethod
    def of(cls, choices: Mapping[str, Choice]) -> TrainingRecipe:
        """The recipe with these choices: axis -> value."""
        return cls(frozenset(choices.items()))

    @property
    def by_axis(self) -> dict[str, Choice]:
        """Axis -> value, axes in alphabetical order."""
        return dict(sorted(self.choices, key=lambda pair: pair[0]))

    @property
    def is_plain(self) -> bool:
        """Whether no choice changes what the training learns."""
        return not self.choices


PLAIN = TrainingRecipe()


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of a technique, by its name in the registry ``jobs.techniques.hooks``."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


HookPlace = Literal["collator", "compiler", "kernels", "model", "optimizer", "loop"]
"""Where a trial calls a hook, in this order. "compiler" and "kernels" take no argument: they set
PyTorch's global state for the process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LibrarySettings:
    """All techniques of a trial merged: what to hand to which library. The job knows no axis."""

    training_arguments: Mapping[str, Any] = field(default_factory=dict)
    deepspeed: Mapping[str, Any] | None = None
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``from_config``/``from_pretrained`` (``dtype``,
    ``attn_implementation``)."""
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    """``HookPlace`` -> the hook called there."""
    requires: tuple[str, ...] = ()
    """Requirements the node must meet, in the syntax of ``jobs.trial.requirements``."""
    builds: tuple[str, ...] = ()
    """DeepSpeed ops to build once per node, before any timing."""


class _CachesIdentity:
    """A slot for the identity beside the fields, so that it is not compared, copied or written."""

    __slots__ = ("_trial_id",)
    _trial_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSpec(_CachesIdentity):
    """One trial, whole."""

    choices: Mapping[str, Choice]
    """Axis -> the variant chosen, every axis of the sweep included."""
    model: ModelSpec
    data: DataSpec
    settings: LibrarySettings
    measure: MeasureSpec = field(default_factory=MeasureSpec)
    needs: Needs = field(default_factory=Needs)
    repeat: int = 0
    training_recipe: TrainingRecipe = PLAIN
    follow_up: FollowUp | None = None
    """None: a trial of the search."""
    gpu_model: str = ""
    """The only GPU model that may run it, where a sweep has several; empty: any."""

    @property
    def trial_id(self) -> str:
        """Twelve hexadecimal digits, the same for the same work on any machine."""
        try:
            return self._trial_id
        except AttributeError:  # not computed yet
            computed = _identity(self)
            object.__setattr__(self, "_trial_id", computed)
            return computed

    @property
    def purpose(self) -> Purpose:
        """Why the trial is run."""
        return self.follow_up.purpose if self.follow_up else Purpose.SEARCH

    @property
    def micro_batch(self) -> int:
        """Samples per forward pass."""
        return int(self.settings.training_arguments.get("per_device_train_batch_size", 8))

    @property
    def accumulation(self) -> int:
        """Forward passes per optimizer step."""
        return int(self.settings.training_arguments.get("gradient_accumulation_steps", 1))

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return self.micro_batch * self.accumulation


def _identity(spec: TrialSpec) -> str:
    """A digest of what is trained and measured, and of nothing else.

    Fields at their defaults are left out, so that a new field with a default renames no trial. So
    are the choices: everything they decide is in ``settings``, but for a batch that does not divide
    and is never run.
    """
    content = _without_defaults(spec)
    for name in ("choices", "needs", "training_recipe"):
        content.pop(name, None)
    content.get("measure", {}).pop("timeout_seconds", None)
    content["batch"] = [spec.choices.get("micro_batch"), spec.choices.get("accumulation")]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_defaults(value: Any) -> Any:
    """``to_json`` without the dataclass fields that are at their default."""
    kind: Any = type(value)
    if _field_names(kind):
        defaults = _field_defaults(kind)
        fields = {name: getattr(value, name) for name in _field_names(kind)}
        return {
            name: _without_defaults(item)
            for name, item in fields.items()
            if name not in defaults or item != defaults[name]
        }
    if isinstance(value, Mapping):
        return {str(key): _without_defaults(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_defaults(item) for item in value]
    return to_json(value)


@functools.cache
def _field_defaults(kind: Any) -> dict[str, Any]:
    defaults = {}
    for declared in dataclasses.fields(kind):
        if declared.default is not dataclasses.MISSING:
            defaults[declared.name] = declared.default
        elif declared.default_factory is not dataclasses.MISSING:
            defaults[declared.name] = declared.default_factory()
    return defaults


_PLAIN_TYPES = (str, int, float, bool)


def to_json(value: Any) -> Any:
    """Dataclasses, mappings, tuples and training recipes as plain JSON values."""
    if value is None or type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, TrainingRecipe):
        return value.by_axis
    kind: Any = type(value)
    if names := _field_names(kind):
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple(declared.name for declared in dataclasses.fields(kind))


def spec_from_json(raw: Mapping[str, Any]) -> TrialSpec:
    """The inverse of ``to_json`` for a ``TrialSpec``.

    Raises KeyError or TypeError on a foreign document.
    """
    parsed = {
        "model": ModelSpec(**raw["model"]),
        "data": _data_from_json(raw["data"]),
        "settings": _settings_from_json(raw["settings"]),
        "measure": _measure_from_json(raw["measure"]),
        "needs": Needs(**raw["needs"]),
        "training_recipe": TrainingRecipe.of(raw["training_recipe"]),
        "follow_up": _follow_up_from_json(raw.get("follow_up")),
    }
    return TrialSpec(**{**raw, **parsed})


def _data_from_json(raw: Mapping[str, Any]) -> DataSpec:
    return DataSpec(
        synthetic=SyntheticData(**raw["synthetic"]) if raw["synthetic"] else None,
        file=DatasetFile(**raw["file"]) if raw["file"] else None,
    )


def _settings_from_json(raw: Mapping[str, Any]) -> LibrarySettings:
    parsed = {
        "hooks": {place: Hook(**hook) for place, hook in raw["hooks"].items()},
        "requires": tuple(raw["requires"]),
        "builds": tuple(raw["builds"]),
    }
    return LibrarySettings(**{**raw, **parsed})


def _measure_from_json(raw: Mapping[str, Any]) -> MeasureSpec:
    cap = raw.get("memory_cap")
    return MeasureSpec(**{**raw, "memory_cap": MemoryCap(**cap) if cap else None})


def _follow_up_from_json(raw: Mapping[str, Any] | None) -> FollowUp | None:
    if raw is None:
        return None
    parsed = {
        "purpose": Purpose(raw["purpose"]),
        "compared_with": tuple(raw["compared_with"]),
    }
    return FollowUp(**{**raw, **parsed})
