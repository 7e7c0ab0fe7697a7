"""The plan: a sweep's configurations as trial specs, and as records if a rule forbids them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from jobs.record import TrialRecord, unsupported
from jobs.spec import Choice, LibrarySettings, MeasureSpec, Needs, TrainingRecipe, TrialSpec
from jobs.techniques import AXES, Variant, merge
from jobs.techniques.axes.offload import deepspeed_row
from jobs.techniques.axes.sharding import SEVERAL_GPUS, SHARDING
from orchestrator.planning.choices.axes import (
    ACCUMULATION,
    EFFECTIVE_BATCH,
    MICRO_BATCH,
    SEQUENCE_LENGTH,
    Choices,
    overlay,
)
from orchestrator.planning.choices.base_arguments import CUSTOM, DEFAULT
from orchestrator.planning.prechecks.technique_requirements import unmet_requirement
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.validity import Variants, broken_rules, traits_of

_SAME_TRAINING = ("dataloader_", "logging_", "torch_", "include_", "ddp_", "average_tokens_")
"""Prefixes of arguments that change how a step runs, not what it computes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Every configuration of a sweep, in exactly one of two places."""

    trials: tuple[TrialSpec, ...]
    ruled_out: tuple[TrialRecord, ...]
    """Outcome UNSUPPORTED, with the name of the rule or the requirement, and its reason."""


def plan(config: SweepConfig, *, has_gpu: bool = True) -> Plan:
    """The sweep's trials in the order of the file, and the combinations that cannot run. A
    combination cannot run if a rule forbids it, or if the configuration shows that a requirement is
    not met. Pure and deterministic."""
    trials: list[TrialSpec] = []
    ruled_out: list[TrialRecord] = []
    rules = RuleCheck(config)
    for choices in configurations(config):
        variants = chosen_variants(choices, config)
        spec = trial_spec(choices, config, has_gpu=has_gpu, variants=variants)
        obstacle = rules.forbidding(choices, variants)
        obstacle = obstacle or unmet_requirement(spec, variants.values())
        for repeat in range(config.repeats):
            trial = replace(spec, repeat=repeat)
            if obstacle is None:
                trials.append(trial)
            else:
                ruled_out.append(unsupported(trial, *obstacle))
    return Plan(trials=tuple(trials), ruled_out=tuple(ruled_out))


def trials_with_ids(trials: Sequence[TrialSpec], prefixes: Sequence[str]) -> list[TrialSpec]:
    """The trials whose ids have one of the prefixes, or all. Raises ValueError for one that none
    has."""
    for prefix in prefixes:
        if not any(trial.trial_id.startswith(prefix) for trial in trials):
            why = "a plan for machines without a GPU has other ids; without an id all are predicted"
            raise ValueError(f"no trial {prefix} in this plan; {why}")
    return [trial for trial in trials if trial.trial_id.startswith(tuple(prefixes) or "")]


def order_by_size(trials: Iterable[TrialSpec]) -> tuple[TrialSpec, ...]:
    """The trials, the smallest effective batch first, because the time may end before the last."""
    return tuple(sorted(trials, key=attrgetter("effective_batch")))


def trial_spec(
    choices: Choices, config: SweepConfig, *, has_gpu: bool, variants: Variants | None = None
) -> TrialSpec:
    """The trial with a choice on every axis, first repeat, whether or not a rule forbids it.
    ``variants`` are those of the choices, if they are known."""
    variants = chosen_variants(choices, config) if variants is None else variants
    resources = config.resources
    return TrialSpec(
        choices=choices,
        model=config.model,
        data=config.data_of(choices),
        settings=_settings(choices, variants, config),
        measure=config.measure if has_gpu else _measure_on_cpu(config),
        needs=Needs(
            gpus=resources.gpus_per_trial if has_gpu else 0,
            cpus=resources.cpus_per_trial,
            host_bytes=resources.host_bytes,
            nvme_path=resources.nvme_path or "",
        ),
        training_recipe=_training_recipe(choices, variants, config),
        own_code=config.own_code,
        world_size=world_size_of(choices, config),
    )


def world_size_of(choices: Choices, config: SweepConfig) -> int:
    """GPUs that a trial with these choices trains on."""
    is_shared = SEVERAL_GPUS in SHARDING.variant(choices[SHARDING.name]).traits
    return config.resources.gpus_per_trial if is_shared else 1


def configurations(config: SweepConfig) -> Iterator[Choices]:
    """Each configuration that is not excluded, once, with a choice on every axis."""
    earlier: set[tuple[tuple[type, Choice], ...]] = set()
    for assignment in _assignments(config):
        choices = _with_numbered_length(_solved(assignment, config), config)
        # By type, too: to Python the choices 1, 1.0 and True are equal.
        # Subsets overlap, and so do single trials and grids.
        identity = tuple((type(choice), choice) for choice in choices.values())
        if identity not in earlier and not _is_excluded(choices, config):
            earlier.add(identity)
            yield choices


def _assignments(config: SweepConfig) -> Iterator[Choices]:
    """What the file asks for: its grids, then its single trials, laid over the baseline."""
    for grid in config.grids:
        # The last axis of the file varies fastest.
        for values in itertools.product(*grid.values()):
            yield overlay(config.baseline, dict(zip(grid, values, strict=True)))
    for trial in config.trials:
        yield overlay(config.baseline, trial)


def _with_numbered_length(choices: Choices, config: SweepConfig) -> Choices:
    """The choices with the length of the data as a number, in a sweep that compares lengths."""
    synthetic, default = config.data.synthetic, AXES[SEQUENCE_LENGTH].default
    compares = config.baseline.get(SEQUENCE_LENGTH) != default
    # How long the rows of a file are is known only when it is read.
    if synthetic is None or not compares or choices[SEQUENCE_LENGTH] != default:
        return choices
    return {**choices, SEQUENCE_LENGTH: synthetic.sequence_length}


def _solved(assignment: Choices, config: SweepConfig) -> Choices:
    """A choice on every axis, techniques first; an effective batch becomes its accumulation. An
    accumulation that is not whole is a fraction, rounded to four digits; a rule forbids it."""
    solved = dict(assignment)
    effective_batch = solved.pop(EFFECTIVE_BATCH, None)
    if isinstance(effective_batch, int):
        micro_batch = solved[MICRO_BATCH]
        assert isinstance(micro_batch, int)
        samples = micro_batch * world_size_of(solved, config)
        whole, rest = divmod(effective_batch, samples)
        solved[ACCUMULATION] = round(effective_batch / samples, 4) if rest else whole
    choices = {axis: solved.pop(axis) for axis in AXES}
    return {**choices, **solved}


def _is_excluded(choices: Choices, config: SweepConfig) -> bool:
    micro_batch, accumulation = choices[MICRO_BATCH], choices[ACCUMULATION]
    assert isinstance(micro_batch, int)
    assert isinstance(accumulation, (int, float))
    # The product is rounded, because an accumulation that is not whole has four digits only.
    samples = micro_batch * accumulation * world_size_of(choices, config)
    values = {**choices, EFFECTIVE_BATCH: round(samples)}
    # An empty exclusion would match everything. Its author meant to exclude nothing.
    return any(
        all(values[axis] in listed for axis, listed in exclusion.items())
        for exclusion in filter(None, config.exclude)
    )


class RuleCheck:
    """The rules of validity, applied once to each set of techniques of a sweep. A plan has each set
    at many micro-batches. The rules do not see the micro-batch."""

    def __init__(self, config: SweepConfig) -> None:
        self._has_user_code = config.own_code is not None
        self._broken: dict[tuple[Choice, ...], tuple[str, str] | None] = {}

    def forbidding(self, choices: Choices, variants: Variants) -> tuple[str, str] | None:
        """Name and reason of the first rule that forbids a combination; None if none does."""
        techniques = {axis: value for axis, value in choices.items() if axis != MICRO_BATCH}
        # An accumulation of 1.5 and one of 1 differ, and so do 1 and 1.0 for a rule on integers.
        identity = (*techniques.values(), str(techniques[ACCUMULATION]))
        if identity not in self._broken:
            traits = traits_of(techniques, variants, has_user_code=self._has_user_code)
            self._broken[identity] = next(broken_rules(traits), None)
        return self._broken[identity]


def chosen_variants(choices: Choices, config: SweepConfig) -> Variants:
    """The rows behind the choices, in order of merging; none for what own arguments decide."""
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
    named = {axis: value for axis, value in choices.items() if axis not in AXES}
    arguments = {**config.training_arguments}
    arguments |= {name: value for name, value in named.items() if value != DEFAULT}
    if config.model.task == "image-text-to-text" and config.data.file is not None:
        # The collator gives images to the processor, which no model takes as they are.
        arguments.setdefault("remove_unused_columns", False)
    # Without a technique that uses it, the user's DeepSpeed file must not start DeepSpeed.
    is_used = any(variant.deepspeed is not None for variant in variants.values())
    return merge(variants.values(), arguments, config.deepspeed if is_used else None)


def _measure_on_cpu(config: SweepConfig) -> MeasureSpec:
    # A CPU takes hundreds of times as long for a step, so a file can ask for fewer.
    fallback = config.cpu_fallback
    return replace(config.measure, warmup_steps=fallback.warmup_steps, steps=fallback.steps)


def _training_recipe(choices: Choices, variants: Variants, config: SweepConfig) -> TrainingRecipe:
    recipe = {}
    # The length of the data is no choice.
    is_given = config.data_of(choices) == config.data
    for axis, choice in choices.items():
        if axis == SEQUENCE_LENGTH and is_given:
            continue
        is_own = choice == config.baseline.get(axis)
        has_own_rows = not is_own and _makes_own_rows(axis, variants, config)
        if _changes_training(axis, choice, variants) or has_own_rows:
            # Some parameters do not change the training, as the row's name in recipes says.
            name = variants[axis].recipe if axis in variants else ""
            recipe[axis] = name or choice
    return TrainingRecipe.of(recipe)


def _makes_own_rows(axis: str, variants: Variants, config: SweepConfig) -> bool:
    """Whether a loop makes other rows of these data, or other weights, than the user's own. TRL
    tokenizes texts in its own way and packs rows into blocks of its own. It also trains the adapter
    of a quantized base in 16 bits."""
    if axis not in variants or "rows" not in variants[axis].hooks:
        return False
    rows = variants.values()
    is_packing = any(
        "packed_rows" in row.traits and row.numerical_effect == "training" for row in rows
    )
    has_texts = config.data.file is not None and config.data.file.tokenizer is not None
    return is_packing or has_texts or any("quantized_base" in row.traits for row in rows)


def _changes_training(axis: str, choice: Choice, variants: Variants) -> bool:
    if axis in variants:
        return variants[axis].numerical_effect == "training"
    # What the user's own arguments do to the training is not known, so it may change it.
    if axis in AXES:
        return choice == CUSTOM
    return choice != DEFAULT and not axis.startswith(_SAME_TRAINING)
