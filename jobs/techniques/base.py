"""The words every technique is written in: an ``Axis`` of ``Variant`` rows, and how chosen rows merge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.spec import Recipe

Effect = Literal["exact", "rounding", "training"]
"""exact: the same numbers; rounding: the same training in other precision; training: another training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One technique: a row of data. Everything that plans, runs, checks or explains it reads this row."""

    doc: str
    training_arguments: Mapping[str, Any] = field(default_factory=dict)
    deepspeed: Mapping[str, Any] | None = None
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    hooks: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Place (one of ``jobs.spec.Recipe.hooks``) -> ("module:function", keyword arguments), for what needs code."""
    requires: tuple[str, ...] = ()
    """In the words of ``jobs.node.requirements``: ``package:bitsandbytes``, ``cuda``, ``capability>=8.0`` ..."""
    prepares: tuple[str, ...] = ()
    """DeepSpeed ops to build once per node before any timing."""
    host: bool = False
    """Works on the host's cores and memory (offload): it is given its share of them."""
    effect: Effect = "exact"
    kin: str = ""
    """Another variant of the axis that takes about the time and memory that this one does: what a search expects."""
    host_work_of: tuple[str, ...] = ()
    """Variants of the axis whose operators, or their like, it launches too: where the GPU waits for the host with one
    of them, it is no faster with this one."""
    tags: tuple[str, ...] = ()
    """Traits that validity rules speak of ("bitsandbytes", "offloaded_optimizer", "torch_adamw" ...)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A dimension of the sweep: named variants, or any positive integer handed to one training argument."""

    name: str
    doc: str
    default: str | int
    variants: dict[str, Variant] = field(default_factory=dict)
    integer_argument: str | None = None

    def variant(self, value: Any) -> Variant:
        """The row behind a value. Raises KeyError for a value this axis does not know."""
        if self.integer_argument is not None:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise KeyError(value)
            return Variant(
                doc=f"{self.doc} {value}", training_arguments={self.integer_argument: value}
            )
        return self.variants[value]


def merge(
    variants: Iterable[Variant],
    training_arguments: Mapping[str, Any],
    deepspeed: Mapping[str, Any] | None,
) -> Recipe:
    """The recipe of the chosen variants on top of the user's own arguments; later variants win."""
    arguments: dict[str, Any] = dict(training_arguments)
    model_kwargs: dict[str, Any] = {}
    hooks: dict[str, tuple[str, Mapping[str, Any]]] = {}
    requires: list[str] = []
    prepares: list[str] = []
    for variant in variants:
        arguments.update(variant.training_arguments)
        model_kwargs.update(variant.model_kwargs)
        hooks.update(variant.hooks)
        requires += variant.requires
        prepares += variant.prepares
        if variant.deepspeed is not None:
            deepspeed = deep_merge(deepspeed or {}, variant.deepspeed)
    return Recipe(
        training_arguments=arguments,
        deepspeed=deepspeed,
        model_kwargs=model_kwargs,
        hooks=hooks,
        requires=tuple(dict.fromkeys(requires)),
        prepares=tuple(dict.fromkeys(prepares)),
    )


def deep_merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """``override`` laid over ``base``, mappings merged key by key."""
    merged = dict(base)
    for key, value in override.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = deep_merge(merged[key], value) if both else value
    return merged
