"""Which values of each axis ``tune`` tries, and why it does not try the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from jobs.spec import Choice, TrainingRecipe
from jobs.techniques import AXES, Variant
from jobs.techniques.sample_kind import same_workload
from jobs.techniques.written_form import read, written
from orchestrator.labels import BATCH_NAMES
from orchestrator.planning.choices.base_arguments import CUSTOM
from orchestrator.planning.plan import trial_spec
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.planning.prechecks.technique_requirements import unmet_requirement
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.tune_space import policy

DOES_NOT_GO = "does not go with this model"
"""Begins the reason of a value without any valid configuration."""

Recipe = Literal["own", "usual", "any"]
"""What is tried: only what trains like the user's arguments, on a GPU also what most people train
with (``policy.USUAL``), or everything."""
IsMissing = Callable[[str], bool]
"""Whether a requirement, such as ``package:torchao``, is surely not met on this machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """The values of the axes of techniques."""

    tried: Mapping[str, tuple[Choice, ...]]
    """Axis -> the values to try, the user's first."""
    not_tried: Mapping[str, Mapping[str, str]]
    """Axis -> value -> the reason why it is not tried."""

    def without(self, reasons: Mapping[tuple[str, Choice], str]) -> Values:
        """These values without some; ``reasons`` maps axis and value to why."""
        tried: dict[str, tuple[Choice, ...]] = {}
        not_tried = {axis: dict(listed) for axis, listed in self.not_tried.items()}
        for axis, values in self.tried.items():
            tried[axis] = tuple(value for value in values if (axis, value) not in reasons)
        for (axis, value), reason in reasons.items():
            not_tried.setdefault(axis, {})[str(value)] = reason
        return Values(tried=tried, not_tried=not_tried)


def listed_values(
    config: SweepConfig, *, recipe: Recipe, has_gpu: bool, is_missing: IsMissing
) -> Values:
    """The values that go with the user's model, data and arguments, each looked at by itself."""
    tried: dict[str, tuple[Choice, ...]] = {}
    not_tried: dict[str, dict[str, str]] = {}
    is_full = config.baseline["adapter"] == AXES["adapter"].default
    for name in (axis for axis in AXES if axis not in BATCH_NAMES):
        own = config.baseline[name]
        is_offered = has_gpu and recipe == "usual"
        is_offered &= is_full or name not in policy.USUAL_OF_ALL_WEIGHTS
        usual = usual_value(name, own) if is_offered else ""
        reasons = {
            value: _why_not(name, value, own, recipe == "any" or value == usual)
            or _why_not_here(name, value, config, has_gpu=has_gpu)
            or _missing_in_words(AXES[name].variant(value), is_missing)
            for value in dict.fromkeys([*AXES[name].variants, *filter(None, [usual])])
            if value != own
        }
        tried[name] = (own, *(value for value, reason in reasons.items() if not reason))
        if against := {value: reason for value, reason in reasons.items() if reason}:
            not_tried[name] = against
    return Values(tried=tried, not_tried=not_tried)


def usual_value(axis: str, own: Choice) -> str:
    """What most people have on this axis in place of the user's value, although it trains
    differently (``policy.USUAL``); empty if nothing."""
    usual = policy.USUAL.get(axis)
    if usual is None or not re.fullmatch(usual.own, str(own)):
        return ""
    name, parameters = read(str(own))
    return usual.value or written(name, {**parameters, **usual.parameters})


def _why_not(axis: str, value: str, own: Choice, trains_as_asked: bool) -> str:
    if own == CUSTOM:
        return "your own arguments decide this axis"
    listed = policy.OTHER_WORKLOADS.get(axis) or policy.NOT_TRIED.get(axis, {}).get(value)
    if listed:
        return listed
    effects = {AXES[axis].variant(choice).numerical_effect for choice in (value, own)}
    if "training" in effects and not trains_as_asked:
        return "trains differently from your own arguments (see --recipe)"
    return ""


def _why_not_here(axis: str, value: str, config: SweepConfig, *, has_gpu: bool) -> str:
    """Why a value does not suit model, data or a comparison of speeds; empty if it suits all."""
    own = config.baseline[axis]
    configuration = ModelConfiguration.of(config.model)
    # The configuration of a checkpoint that is not on this machine may say anything.
    is_quantized = not configuration.model_type or "quantization_config" in configuration.given
    for_quantized = policy.FOR_QUANTIZED_WEIGHTS.get(axis, {})
    if value in for_quantized and not is_quantized:
        return f"{DOES_NOT_GO}: {for_quantized[value]}"
    if not same_workload(TrainingRecipe.of({axis: value}), TrainingRecipe.of({axis: own})):
        return "trains on other rows, so its speed is that of another workload"
    for_unequal = policy.FOR_UNEQUAL_ROWS.get(axis, {})
    if (reason := for_unequal.get(value) or for_unequal.get("*")) and has_equal_rows(config):
        return reason
    return _unmet_here(axis, value, config, has_gpu=has_gpu)


def _unmet_here(axis: str, value: str, config: SweepConfig, *, has_gpu: bool) -> str:
    """What the value itself needs and the model, the data or the arguments do not have."""
    spec = trial_spec({**config.baseline, axis: value}, config, has_gpu=has_gpu)
    # What other techniques of the baseline need says nothing about this value.
    variant = AXES[axis].variant(value)
    settings = replace(spec.settings, requires=variant.requires)
    unmet = unmet_requirement(replace(spec, settings=settings), [variant])
    if unmet is None or unmet[0] not in {*variant.requires, *variant.traits}:
        return ""
    return f"{DOES_NOT_GO}: {unmet[1]}"


def _missing_in_words(variant: Variant, is_missing: IsMissing) -> str:
    """``needs the package torchao, which this machine lacks``; empty if nothing is missing."""
    missing = next(filter(is_missing, variant.requires), "")
    kind, _, name = missing.partition(":")
    subject, _, version = missing.partition(">=")
    if kind == "package":
        what = f"the package {name}"
    elif subject == "capability":
        what = f"a GPU of compute capability {version} or newer"
    elif version:
        what = f"{subject} {version} or newer"
    else:
        what = {"cuda": "a GPU", "fsdp2": "a GPU", "bf16": "a GPU that computes in bf16"}.get(
            kind, missing
        )
    return f"needs {what}, which this machine lacks" if missing else ""


def has_equal_rows(config: SweepConfig) -> bool:
    """Whether all rows are surely equally long, and have no padding."""
    synthetic = config.data.synthetic
    return synthetic is not None and synthetic.lengths is None and not synthetic.padding
