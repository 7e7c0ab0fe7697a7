"""The plan: a configuration as trial specs, and as records for the points that cannot run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from jobs.record import TrialRecord, unsupported
from jobs.spec import Choice, MeasureSpec, Needs, TrainingRecipe, TrialSpec
from jobs.techniques import AXES, Variant, merge
from orchestrator.planning.axes import ACCUMULATION, EFFECTIVE_BATCH, Assignment, lay
from orchestrator.planning.base_arguments import CUSTOM, DEFAULT, deepspeed_variant
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.validity import Choices, Variants, broken_rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Every point of a sweep, in exactly one of two places."""

    trials: tuple[TrialSpec, ...]
    ruled_out: tuple[TrialRecord, ...]
    """Outcome UNSUPPORTED, with the rule's name and its reason."""


def plan(config: SweepConfig, *, has_gpu: bool = True) -> Plan:
    """The sweep's trials in the order of the file, and the points that a rule forbids. Pure and deterministic."""
    trials: list[TrialSpec] = []
    ruled_out: list[TrialRecord] = []
    for choices in _points(config):
        variants = _variants(choices, config)
        rule = broken_rule(choices, variants)
        spec = _spec(choices, variants, config, has_gpu=has_gpu)
        repeats = [replace(spec, repeat=repeat) for repeat in range(config.repeats)]
        if rule is None:
            trials += repeats
        else:
            ruled_out += [unsupported(trial, rule.name, rule.reason) for trial in repeats]
    return Plan(trials=tuple(trials), ruled_out=tuple(ruled_out))


def order_by_size(trials: Iterable[TrialSpec]) -> tuple[TrialSpec, ...]:
    """The trials with the fewest samples a step first: on a machine without a GPU, time runs out."""
    return tuple(sorted(trials, key=lambda trial: trial.effective_batch))


def _points(config: SweepConfig) -> Iterator[Choices]:
    """Each point that is not excluded, once, with a choice on every axis."""
    met: set[tuple[Choice | type, ...]] = set()
    for assignment in _assignments(config):
        choices = _solve(assignment)
        identity = tuple(part for choice in choices.values() for part in (type(choice), choice))
        if identity not in met and not _is_excluded(choices, config):
            met.add(identity)
            yield choices


def _assignments(config: SweepConfig) -> Iterator[Assignment]:
    grids = [lay(config.axes, subset) for subset in config.subsets.values()]
    if not grids and (config.axes or not config.trials):
        grids = [dict(config.axes)]
    for grid in grids:
        for values in itertools.product(*grid.values()):
            yield lay(config.baseline, dict(zip(grid, values, strict=True)))
    for trial in config.trials:
        yield lay(config.baseline, trial)


def _solve(assignment: Assignment) -> Choices:
    """A choice on every axis, techniques first; an effective batch becomes its accumulation, whole or not."""
    solved = dict(assignment)
    effective = solved.pop(EFFECTIVE_BATCH, None)
    if isinstance(effective, int):
        micro = _integer(solved["micro_batch"])
        solved[ACCUMULATION] = (
            effective // micro if effective % micro == 0 else round(effective / micro, 4)
        )
    return {axis: solved[axis] for axis in (*AXES, *(axis for axis in solved if axis not in AXES))}


def _integer(choice: Choice) -> int:
    assert isinstance(choice, int), choice
    return choice


def _is_excluded(choices: Choices, config: SweepConfig) -> bool:
    micro, accumulation = choices["micro_batch"], choices[ACCUMULATION]
    assert isinstance(micro, int)
    assert isinstance(accumulation, (int, float))
    known = {**choices, EFFECTIVE_BATCH: round(micro * accumulation)}
    return any(
        partial and all(known[axis] in values for axis, values in partial.items())
        for partial in config.exclude
    )


def _variants(choices: Choices, config: SweepConfig) -> Variants:
    """The rows behind the choices, in order of merging, without those that the user's own arguments decide."""
    variants: dict[str, Variant] = {}
    for name, axis in AXES.items():
        choice = choices[name]
        if name == "offload" and choice == CUSTOM and config.deepspeed is not None:
            variants[name] = deepspeed_variant(config.deepspeed)
        elif choice != CUSTOM and not isinstance(choice, float):
            variants[name] = axis.variant(choice)
    return variants


def _spec(choices: Choices, variants: Variants, config: SweepConfig, *, has_gpu: bool) -> TrialSpec:
    arguments = {
        axis: value for axis, value in choices.items() if axis not in AXES and value != DEFAULT
    }
    uses_deepspeed = any(variant.deepspeed is not None for variant in variants.values())
    settings = merge(
        variants.values(),
        {**config.training_arguments, **arguments},
        config.deepspeed if uses_deepspeed else None,
    )
    resources = config.resources
    return TrialSpec(
        choices=choices,
        model=config.model,
        data=config.data,
        settings=settings,
        measure=config.measure if has_gpu else _on_cpu(config),
        needs=Needs(
            gpus=int(has_gpu),
            cpus=resources.cpus_per_trial,
            host_bytes=resources.host_bytes,
            nvme_path=resources.nvme_path or "",
        ),
        training_recipe=_training_recipe(choices, variants),
    )


def _on_cpu(config: SweepConfig) -> MeasureSpec:
    return replace(
        config.measure,
        warmup_steps=config.cpu_fallback.warmup_steps,
        steps=config.cpu_fallback.steps,
    )


# Arguments that change how a step runs, not what it computes; any other may make it another training.
_SAME_TRAINING = ("dataloader_", "logging_", "torch_", "include_", "ddp_", "average_tokens_")


def _training_recipe(choices: Choices, variants: Mapping[str, Variant]) -> TrainingRecipe:
    """The choices that change what the training learns."""
    return TrainingRecipe.of(
        {
            axis: choice
            for axis, choice in choices.items()
            if _changes_training(axis, choice, variants)
        }
    )


def _changes_training(axis: str, choice: Choice, variants: Mapping[str, Variant]) -> bool:
    if axis in variants:
        return variants[axis].numerical_effect == "training"
    if axis in AXES:
        return choice == CUSTOM
    return choice != DEFAULT and not axis.startswith(_SAME_TRAINING)
