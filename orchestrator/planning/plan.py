"""The plan: a sweep's configurations as trial specs, and as records if a rule forbids them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from jobs.record import TrialRecord, unsupported
from jobs.spec import (
    Choice,
    LibrarySettings,
    MeasureSpec,
    Needs,
    TrainingRecipe,
    TrialSpec,
)
from jobs.techniques import AXES, Variant, merge
from jobs.techniques.axes.offload import deepspeed_row
from jobs.techniques.variant import OTHER_WORKLOAD
from orchestrator.planning.axes import (
    ACCUMULATION,
    EFFECTIVE_BATCH,
    MICRO_BATCH,
    SEQUENCE_LENGTH,
    Choices,
    grids_of,
    overlay,
)
from orchestrator.planning.base_arguments import CUSTOM, DEFAULT
from orchestrator.planning.prechecks.technique_requirements import unmet_requirement
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.validity import Rule, Variants, broken_rule

_SAME_TRAINING = ("dataloader_", "logging_", "torch_", "include_", "ddp_", "average_tokens_")
"""Prefixes of arguments that change how a step runs, not what it computes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Every configuration of a sweep, in exactly one of two places."""

    trials: tuple[TrialSpec, ...]
    ruled_out: tuple[TrialRecord, ...]
    """Outcome UNSUPPORTED, with the name of the rule or the requirement, and its reason."""


def plan(config: SweepConfig, *, has_gpu: bool = True) -> Plan:
    """The sweep's trials in the order of the file, and the combinations that cannot run.

    A combination cannot run if a rule forbids it, or if the configuration shows that a requirement
    is not met. Pure and deterministic.
    """
    trials: list[TrialSpec] = []
    ruled_out: list[TrialRecord] = []
    rules = RuleCheck(config)
    for choices in _configurations(config):
        variants = chosen_variants(choices, config)
        spec = _trial_spec(choices, variants, config, has_gpu=has_gpu)
        rule = rules.forbidding(choices, variants)
        obstacle = unmet_requirement(spec, variants.values())
        if rule is not None:
            obstacle = (rule.name, rule.reason)
        for repeat in range(config.repeats):
            trial = replace(spec, repeat=repeat)
            if obstacle is None:
                trials.append(trial)
            else:
                ruled_out.append(unsupported(trial, *obstacle))
    return Plan(trials=tuple(trials), ruled_out=tuple(ruled_out))


def trials_with_ids(trials: Sequence[TrialSpec], prefixes: Sequence[str]) -> list[TrialSpec]:
    """The trials whose ids start with one of the prefixes; all trials if there are no prefixes.

    Raises ValueError for a prefix that no trial has.
    """
    for prefix in prefixes:
        if not any(trial.trial_id.startswith(prefix) for trial in trials):
            raise ValueError(f"no trial {prefix} in this plan; without an id all are predicted")
    if not prefixes:
        return list(trials)
    return [trial for trial in trials if trial.trial_id.startswith(tuple(prefixes))]


def order_by_size(trials: Iterable[TrialSpec]) -> tuple[TrialSpec, ...]:
    """The trials, the smallest effective batch first, because the time may end before the last."""
    return tuple(sorted(trials, key=attrgetter("effective_batch")))


def trial_spec(choices: Choices, config: SweepConfig, *, has_gpu: bool) -> TrialSpec:
    """The trial with a choice on every axis, first repeat, whether or not a rule forbids it."""
    return _trial_spec(choices, chosen_variants(choices, config), config, has_gpu=has_gpu)


def _trial_spec(
    choices: Choices, variants: Variants, config: SweepConfig, *, has_gpu: bool
) -> TrialSpec:
    resources = config.resources
    return TrialSpec(
        choices=choices,
        model=config.model,
        data=config.data_of(choices),
        settings=_settings(choices, variants, config),
        measure=config.measure if has_gpu else _measure_on_cpu(config),
        needs=Needs(
            gpus=int(has_gpu),
            cpus=resources.cpus_per_trial,
            host_bytes=resources.host_bytes,
            nvme_path=resources.nvme_path or "",
        ),
        training_recipe=_training_recipe(choices, variants, config),
        own_code=config.own_code,
    )


def _without_data_length(choices: Choices, config: SweepConfig) -> Choices:
    """The choices without the sequence length, if it is the length of the data."""
    if config.data_of(choices) != config.data:
        return choices
    return {axis: value for axis, value in choices.items() if axis != SEQUENCE_LENGTH}


def _configurations(config: SweepConfig) -> Iterator[Choices]:
    """Each configuration that is not excluded, once, with a choice on every axis."""
    earlier: set[tuple[tuple[type, Choice], ...]] = set()
    for assignment in _assignments(config):
        choices = _with_numbered_length(_solved(assignment), config)
        # By type, too: to Python the choices 1, 1.0 and True are equal.
        # Subsets overlap, and so do single trials and grids.
        identity = tuple((type(choice), choice) for choice in choices.values())
        if identity not in earlier and not _is_excluded(choices, config):
            earlier.add(identity)
            yield choices


def _assignments(config: SweepConfig) -> Iterator[Choices]:
    """What the file asks for: its grids, then its single trials, laid over the baseline."""
    for grid in grids_of(config.axes, config.subsets, config.trials):
        # The last axis of the file varies fastest.
        for values in itertools.product(*grid.values()):
            yield overlay(config.baseline, dict(zip(grid, values, strict=True)))
    for trial in config.trials:
        yield overlay(config.baseline, trial)


def _with_numbered_length(choices: Choices, config: SweepConfig) -> Choices:
    """The choices with the length of the data as a number, in a sweep that compares lengths."""
    length = config.data_length
    is_named = choices[SEQUENCE_LENGTH] != AXES[SEQUENCE_LENGTH].default
    compares = config.baseline.get(SEQUENCE_LENGTH) != AXES[SEQUENCE_LENGTH].default
    if is_named or length is None or not compares:
        return choices
    return {**choices, SEQUENCE_LENGTH: length}


def _solved(assignment: Choices) -> Choices:
    """A choice on every axis, techniques first; an effective batch becomes its accumulation.

    An accumulation that is not whole is a fraction, rounded to four digits; a rule forbids it.
    """
    solved = dict(assignment)
    effective_batch = solved.pop(EFFECTIVE_BATCH, None)
    if isinstance(effective_batch, int):
        solved[ACCUMULATION] = _accumulation(effective_batch, solved[MICRO_BATCH])
    choices = {axis: solved.pop(axis) for axis in AXES}
    return {**choices, **solved}


def _accumulation(effective_batch: int, micro_batch: Choice) -> int | float:
    assert isinstance(micro_batch, int)
    if effective_batch % micro_batch == 0:
        return effective_batch // micro_batch
    return round(effective_batch / micro_batch, 4)


def _is_excluded(choices: Choices, config: SweepConfig) -> bool:
    micro_batch = choices[MICRO_BATCH]
    accumulation = choices[ACCUMULATION]
    assert isinstance(micro_batch, int)
    assert isinstance(accumulation, (int, float))
    # The product is rounded, because an accumulation that is not whole has four digits only.
    effective_batch = round(micro_batch * accumulation)
    values = {**choices, EFFECTIVE_BATCH: effective_batch}
    # An empty exclusion would match everything. Its author meant to exclude nothing.
    return any(
        all(values[axis] in listed for axis, listed in exclusion.items())
        for exclusion in filter(None, config.exclude)
    )


class RuleCheck:
    """The rules of validity, applied once to each set of techniques of a sweep.

    A plan has each set at many micro-batches. The rules do not see the micro-batch.
    """

    def __init__(self, config: SweepConfig) -> None:
        self._config = config
        self._rules: dict[tuple[Choice, ...], Rule | None] = {}

    def forbidding(self, choices: Choices, variants: Variants) -> Rule | None:
        """The rule that forbids a combination; None if none does."""
        techniques = {axis: value for axis, value in choices.items() if axis != MICRO_BATCH}
        # An accumulation of 1.5 and one of 1 differ, and so do 1 and 1.0 for a rule on integers.
        identity = (*techniques.values(), str(techniques[ACCUMULATION]))
        if identity not in self._rules:
            self._rules[identity] = broken_rule(
                techniques, variants, has_user_code=self._config.own_code is not None
            )
        return self._rules[identity]


def chosen_variants(choices: Choices, config: SweepConfig) -> Variants:
    """The rows behind the choices, in order of merging.

    Axes that the user's own arguments decide have none.
    """
    variants: dict[str, Variant] = {}
    for name, axis in AXES.items():
        choice = choices[name]
        # The user's own DeepSpeed file acts as a row of the axis.
        if name == "offload" and choice == CUSTOM and config.deepspeed is not None:
            variants[name] = deepspeed_row("your own DeepSpeed file", config.deepspeed)
        elif choice != CUSTOM and not isinstance(choice, float):
            variants[name] = axis.variant(choice)
    return variants


def _settings(choices: Choices, variants: Variants, config: SweepConfig) -> LibrarySettings:
    """The settings of the trial: the user's base, overridden by the chosen techniques."""
    arguments = dict(config.training_arguments)
    for axis, value in choices.items():
        if axis not in AXES and value != DEFAULT:
            arguments[axis] = value
    # Without a technique that uses it, the user's DeepSpeed file must not start DeepSpeed.
    deepspeed = None
    if any(variant.deepspeed is not None for variant in variants.values()):
        deepspeed = config.deepspeed
    if config.model.task == "image-text-to-text" and config.data.file is not None:
        # The collator gives images to the processor, which no model takes as they are.
        arguments.setdefault("remove_unused_columns", False)
    return merge(variants.values(), arguments, deepspeed)


def _measure_on_cpu(config: SweepConfig) -> MeasureSpec:
    # A CPU takes hundreds of times as long for a step, so a file can ask for fewer.
    fallback = config.cpu_fallback
    return replace(config.measure, warmup_steps=fallback.warmup_steps, steps=fallback.steps)


def _training_recipe(
    choices: Choices, variants: Mapping[str, Variant], config: SweepConfig
) -> TrainingRecipe:
    """The choices that change what the training learns."""
    recipe = {}
    for axis, choice in _without_data_length(choices, config).items():
        is_other = _changes_training(axis, choice, variants)
        if is_other or _makes_own_rows(axis, variants, config):
            recipe[axis] = _name_in_recipe(axis, choice, variants)
    return TrainingRecipe.of(recipe)


def _name_in_recipe(axis: str, choice: Choice, variants: Mapping[str, Variant]) -> Choice:
    """The choice, without the parameters of which its row says that they do not change training."""
    if axis in variants and variants[axis].recipe:
        return variants[axis].recipe
    return choice


def _makes_own_rows(axis: str, variants: Mapping[str, Variant], config: SweepConfig) -> bool:
    """Whether a loop makes other rows of these data, or other weights, than the other loops do.

    TRL tokenizes texts in its own way and packs rows into blocks of its own. It also trains the
    adapter of a quantized base in 16 bits.
    """
    if axis not in variants or "rows" not in variants[axis].hooks:
        return False
    has_texts = config.data.file is not None and config.data.file.tokenizer is not None
    for other in variants.values():
        is_packing = "batching" in other.hooks and OTHER_WORKLOAD in other.traits
        if is_packing or "quantized_base" in other.traits:
            return True
    return has_texts


def _changes_training(axis: str, choice: Choice, variants: Mapping[str, Variant]) -> bool:
    if axis in variants:
        return variants[axis].numerical_effect == "training"
    # What the user's own arguments do to the training is not known, so it may change it.
    if axis in AXES:
        return choice == CUSTOM
    return choice != DEFAULT and not axis.startswith(_SAME_TRAINING)
