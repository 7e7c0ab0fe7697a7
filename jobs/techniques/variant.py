"""What a technique is: a ``Variant``, a row of data on an ``Axis``; the registry of all axes."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.record import Column
from jobs.spec import Hook, LibrarySettings
from jobs.techniques.written_form import ParametersError, read

NumericalEffect = Literal["exact", "rounding", "training"]
"""exact: the same numbers; rounding: the same training, rounded differently; training: a different
training."""

OTHER_WORKLOAD = "other_workload"
"""The trait of a variant that changes what one sample is, such as its length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One technique, as data. The plan, the trial, the checks and the reports all read this row."""

    doc: str
    training_arguments: Mapping[str, Any] = field(default_factory=dict)
    deepspeed: Mapping[str, Any] | None = None
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    """Place -> hook, for a technique that needs code; see ``jobs.spec.library_settings``."""
    requires: tuple[str, ...] = ()
    """Requirements on the node, such as ``capability>=8.0``; see ``jobs.trial.requirements``."""
    builds: tuple[str, ...] = ()  # DeepSpeed ops to build once per node, before any timing
    numerical_effect: NumericalEffect = "exact"
    traits: tuple[str, ...] = ()
    """Properties that the rules of ``orchestrator.planning.validity`` check, such as "lomo"."""
    recipe: str = ""
    """The name of its training, if several rows are the same; empty: the value of the axis."""
    own_defaults: Mapping[str, str] = field(default_factory=dict)
    """Axis -> its value where neither the user's file nor their arguments say anything, for a
    library whose defaults are not those of ``TrainingArguments``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Techniques that take the parameters of a library's configuration class."""

    doc: str
    config_class: str
    """``module:Class``, whose fields are the parameters. Planning never imports its library."""
    build: Callable[[dict[str, Any]], Variant]
    """Parameters -> the row. Their names and types have been checked against the class."""
    decided: Mapping[str, str] = field(default_factory=dict)
    """Parameter of the class that the user may not set -> the reason."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Parameter that the class does not have, or declares too widely -> its type."""
    problem: Callable[[Mapping[str, Any]], str] | None = None
    """Says which parameters contradict each other, and why; empty if none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamePattern:
    """Variants whose name holds a number, such as ``budget_0.35``."""

    form: str  # the form of the names, as the documentation writes it: ``budget_<share>``
    doc: str
    pattern: str
    """Of whole names, in Python and in JavaScript; it allows one spelling for each number."""
    variant: Callable[[str], Variant]  # the row of a name that ``pattern`` matches


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A dimension of the sweep: names, integers, names with a number, and families."""

    name: str
    doc: str
    default: str | int
    variants: dict[str, Variant] = field(default_factory=dict)
    families: dict[str, Family] = field(default_factory=dict)
    integer_argument: str | None = None
    integer_unit: str = ""
    """The unit of integers ("tokens"), if they change the data and not a training argument."""
    pattern: NamePattern | None = None

    @property
    def takes_integers(self) -> bool:
        """Whether positive integers are values of this axis."""
        return bool(self.integer_argument or self.integer_unit)

    def variant(self, value: Any) -> Variant:
        """The row of a value. Raises KeyError for a value that this axis does not have."""
        if not self.takes_integers or (isinstance(value, str) and self.integer_unit):
            return self._named(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise KeyError(value)
        doc = f"{self.doc}: {value}"
        if self.integer_argument is None:
            return Variant(doc=doc, numerical_effect="training", traits=(OTHER_WORKLOAD,))
        return Variant(doc=doc, training_arguments={self.integer_argument: value})

    def fits_pattern(self, name: str) -> bool:
        """Whether a name is one of those that the pattern stands for."""
        return self.pattern is not None and bool(re.fullmatch(self.pattern.pattern, name))

    @property
    def names(self) -> list[str]:
        """The values that are text: all names, the form of the pattern, and the families."""
        forms = [] if self.pattern is None else [self.pattern.form]
        return list(dict.fromkeys([*self.variants, *forms, *self.families]))

    def _named(self, value: Any) -> Variant:
        if value in self.variants or not isinstance(value, str):
            return self.variants[value]
        if self.pattern is not None and self.fits_pattern(value):
            return self.pattern.variant(value)
        try:
            family, parameters = read(value)
        except ParametersError:
            raise KeyError(value) from None
        return self.families[family].build(parameters)


AXES: dict[str, Axis] = {}
"""Name -> axis. Variants are merged in this order: if two set the same argument, the later axis
wins. The modules that ``jobs.techniques`` imports add to it; a user's own code may, too."""
COLUMNS: list[Column] = []
"""Columns that only some loops measure: ``Trained.columns`` has their values."""
INCOMPATIBLE: dict[str, tuple[tuple[str, ...], str]] = {}
"""Name of a rule -> the traits that do not go together, and why."""


def add(*axes: Axis) -> None:
    """Add axes after those that are there."""
    AXES.update((axis.name, axis) for axis in axes)


def merge(
    variants: Iterable[Variant],
    training_arguments: Mapping[str, Any],
    deepspeed: Mapping[str, Any] | None,
) -> LibrarySettings:
    """The user's own arguments and DeepSpeed file, overridden by each variant in turn."""
    arguments: dict[str, Any] = dict(training_arguments)
    model_kwargs: dict[str, Any] = {}
    hooks: dict[str, Hook] = {}
    requires: list[str] = []
    builds: list[str] = []
    # In mappings the later variant wins.
    for variant in variants:
        requires += variant.requires
        builds += variant.builds
        arguments.update(variant.training_arguments)
        model_kwargs.update(variant.model_kwargs)
        hooks.update(variant.hooks)
        if variant.deepspeed is not None:
            deepspeed = deep_merge(deepspeed or {}, variant.deepspeed)
    return LibrarySettings(
        training_arguments=arguments,
        deepspeed=deepspeed,
        model_kwargs=model_kwargs,
        hooks=hooks,
        requires=tuple(dict.fromkeys(requires)),
        builds=tuple(dict.fromkeys(builds)),
    )


def deep_merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``override``; mappings are merged key by key."""
    merged = {**base, **override}
    for key in base.keys() & override.keys():
        if isinstance(base[key], Mapping) and isinstance(override[key], Mapping):
            merged[key] = deep_merge(base[key], override[key])
    return merged
