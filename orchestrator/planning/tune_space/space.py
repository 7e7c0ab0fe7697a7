"""The configurations that ``tune`` chooses from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.spec import Choice, TrainingRecipe
from jobs.techniques import AXES, Variant
from jobs.techniques.workload import same_workload
from orchestrator.planning.axes import ACCUMULATION, EFFECTIVE_BATCH, MICRO_BATCH, Assignment
from orchestrator.planning.base_arguments import CUSTOM
from orchestrator.planning.plan import Plan, plan
from orchestrator.planning.settings import SearchChoice, SweepConfig
from orchestrator.planning.tune_space import policy, sizes
from orchestrator.planning.tune_space.own_values import with_own_values

BATCH_AXES = (MICRO_BATCH, ACCUMULATION)
_STEPS = 5
_WARMUP_STEPS = 2
"""Fewer steps than in a sweep, because the search measures many configurations."""

_TASK = "task:"
"""Begins the requirement of a task."""
_FEW_CHANGES = 3
"""Up to this many changed axes at a time, even the coarsest choice of micro-batches is accepted."""

IsMissing = Callable[[Variant], bool]
"""Whether a requirement of a technique is surely not met on this machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """The request to ``tune``."""

    budgets: tuple[int, ...] = ()
    """Memory budgets in bytes; empty: the memory of the GPU."""
    effective_batch: int | None = None
    """Samples per optimizer step; None: as in the user's arguments if they accumulate, else any."""
    any_recipe: bool = False
    """Whether techniques that change the training are also tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneSpace:
    """The user's configuration with the axes to try, and the plan made from it."""

    config: SweepConfig
    plan: Plan
    effective_batch: int | None
    """Samples per optimizer step of every configuration; None: any."""
    not_tried: Mapping[str, Mapping[str, str]]
    """Axis -> value -> the reason why it is not tried."""


def tune_space(
    config: SweepConfig,
    goal: Goal,
    *,
    has_gpu: bool,
    is_missing: IsMissing,
    limit: int = policy.MAX_CONFIGURATIONS,
) -> TuneSpace:
    """The space for the user's configuration: at most ``limit`` configurations.

    Pure and deterministic.
    """
    baseline, arguments = with_own_values(config.baseline, config.training_arguments)
    effective_batch = goal.effective_batch or _own_effective_batch(baseline)
    baseline = _with_accumulation(baseline)
    values, not_tried = _values(baseline, goal, config.model.task, is_missing)
    tuned = replace(
        config,
        training_arguments=arguments,
        axes={},
        subsets={},
        exclude=(),
        trials=(),
        baseline=baseline,
        repeats=1,
        budgets=goal.budgets or config.budgets,
        search=SearchChoice(kind="answer"),
        measure=replace(
            config.measure,
            warmup_steps=min(config.measure.warmup_steps, _WARMUP_STEPS),
            steps=min(config.measure.steps or _STEPS, _STEPS),
            profile=False,
        ),
    )
    assignments = _fitting(values, baseline, effective_batch, has_gpu=has_gpu, limit=limit)
    # The user's own training comes first, because everything is compared with it.
    planned = plan(replace(tuned, trials=(baseline, *assignments)), has_gpu=has_gpu)
    axes = _shown_axes(values, assignments)
    return TuneSpace(
        config=replace(tuned, axes=axes),
        plan=planned,
        effective_batch=effective_batch,
        not_tried=not_tried,
    )


def _shown_axes(
    values: Mapping[str, tuple[Choice, ...]], assignments: Sequence[Assignment]
) -> dict[str, tuple[Choice, ...]]:
    """Axis -> its values, for the axes with several values in the space."""
    axes: dict[str, tuple[Choice, ...]] = {}
    for axis in BATCH_AXES:
        axes[axis] = tuple(dict.fromkeys(assignment[axis] for assignment in assignments))
    axes |= values
    return {axis: listed for axis, listed in axes.items() if len(listed) > 1}


def _own_effective_batch(baseline: Mapping[str, Choice]) -> int | None:
    """The effective batch of the user's arguments; None if they do not accumulate."""
    named = baseline.get(EFFECTIVE_BATCH)
    if isinstance(named, int):
        return named
    micro_batch = baseline[MICRO_BATCH]
    accumulation = baseline.get(ACCUMULATION, 1)
    if isinstance(micro_batch, int) and isinstance(accumulation, int) and accumulation > 1:
        return micro_batch * accumulation
    return None


def _with_accumulation(baseline: Assignment) -> dict[str, Choice]:
    """The baseline with an accumulation instead of an effective batch."""
    choices = dict(baseline)
    effective_batch = choices.pop(EFFECTIVE_BATCH, None)
    micro_batch = choices[MICRO_BATCH]
    if isinstance(effective_batch, int) and isinstance(micro_batch, int):
        choices[ACCUMULATION] = max(1, effective_batch // micro_batch)
    return choices


def _values(
    baseline: Mapping[str, Choice], goal: Goal, task: str, is_missing: IsMissing
) -> tuple[dict[str, tuple[Choice, ...]], dict[str, dict[str, str]]]:
    """Axis -> the values to try, the user's first; and axis -> value -> why it is not tried."""
    values: dict[str, tuple[Choice, ...]] = {}
    not_tried: dict[str, dict[str, str]] = {}
    for name, axis in AXES.items():
        if name in BATCH_AXES:
            continue
        own = baseline[name]
        chosen: list[Choice] = [own]
        for value in axis.variants:
            if value == own:
                continue
            reason = _why_not(name, value, own, goal, is_missing)
            reason = reason or _why_not_here(name, value, own, task)
            if reason:
                not_tried.setdefault(name, {})[value] = reason
            else:
                chosen.append(value)
        values[name] = tuple(chosen)
    return values, not_tried


def _why_not(axis: str, value: str, own: Choice, goal: Goal, is_missing: IsMissing) -> str:
    """The reason why a value is not tried; empty if it is tried."""
    variants = AXES[axis].variants
    if own == CUSTOM:
        return "your own arguments decide this axis"
    if axis in policy.OTHER_WORKLOADS:
        return policy.OTHER_WORKLOADS[axis]
    if value in policy.NOT_TRIED.get(axis, {}):
        return policy.NOT_TRIED[axis][value]
    effects = {variants[value].numerical_effect, _effect_of(axis, own)}
    if "training" in effects and not goal.any_recipe:
        return "trains differently from your own arguments"
    if is_missing(variants[value]):
        return "needs what this machine lacks"
    return ""


def _why_not_here(axis: str, value: str, own: Choice, task: str) -> str:
    """Why a value does not suit the task, or a comparison of speeds; empty if it suits both."""
    variant = AXES[axis].variants[value]
    if not same_workload(TrainingRecipe.of({axis: value}), TrainingRecipe.of({axis: own})):
        return "trains on other rows, so its speed is that of another workload"
    tasks = [name for name in variant.requires if name.startswith(_TASK)]
    if tasks and f"{_TASK}{task}" not in tasks:
        return f"needs another task than {task}"
    return ""


def _effect_of(axis: str, value: Choice) -> str:
    variant = AXES[axis].variants.get(str(value))
    if variant is None:
        return "exact"
    return variant.numerical_effect


def _fitting(
    values: Mapping[str, Sequence[Choice]],
    baseline: Assignment,
    effective_batch: int | None,
    *,
    has_gpu: bool,
    limit: int,
) -> list[dict[str, Choice]]:
    """The largest space within the limit, with fewer micro-batches, then fewer changed axes."""
    free = sum(len(listed) > 1 for listed in values.values())
    for changes in range(free, -1, -1):
        count = _technique_count(values, changes)
        for per_octave in sizes.STEPS_PER_OCTAVE:
            batches = _batches(effective_batch, per_octave, has_gpu=has_gpu)
            # Fewer changed axes are better than micro-batches so coarse that the best is missing.
            is_coarse = per_octave == 1 and changes > _FEW_CHANGES
            if count * len(batches) <= limit and not is_coarse:
                return _crossed(list(_technique_sets(values, changes)), batches, baseline)
    return []


def _technique_count(values: Mapping[str, Sequence[Choice]], changes: int) -> int:
    """The number of combinations that ``_technique_sets`` yields, without making them."""
    free = [axis for axis, listed in values.items() if len(listed) > 1]
    count = 0
    # Each changed axis takes any of its values but the user's.
    for axes in _changed_axes(free, changes):
        count += math.prod(len(values[axis]) - 1 for axis in axes)
    return count


def _batches(
    effective_batch: int | None, per_octave: int, *, has_gpu: bool
) -> list[dict[str, Choice]]:
    """The batches to try: any micro-batch without accumulation, or those of the effective batch."""
    largest = sizes.LARGEST
    if not has_gpu:
        largest = sizes.LARGEST_WITHOUT_GPU
    if effective_batch is None:
        listed = sizes.micro_batches(largest, per_octave)
        return [{MICRO_BATCH: size, ACCUMULATION: 1} for size in listed]
    batches: list[dict[str, Choice]] = []
    for size in sizes.divisors(effective_batch, largest):
        batches.append({MICRO_BATCH: size, ACCUMULATION: effective_batch // size})
    return batches


def _technique_sets(
    values: Mapping[str, Sequence[Choice]], changes: int
) -> Iterator[dict[str, Choice]]:
    """The combinations of values that differ from the user's on at most ``changes`` axes."""
    own = {axis: listed[0] for axis, listed in values.items()}
    for axes in _changed_axes(
        [axis for axis, listed in values.items() if len(listed) > 1], changes
    ):
        others = [values[axis][1:] for axis in axes]
        for combination in itertools.product(*others):
            yield {**own, **dict(zip(axes, combination, strict=True))}


def _changed_axes(free: Sequence[str], changes: int) -> Iterator[tuple[str, ...]]:
    """The sets of axes that are changed together, the smallest first."""
    for count in range(changes + 1):
        for axes in itertools.combinations(free, count):
            alone = policy.ALONE.intersection(axes)
            if len(alone) < 2 and not (alone and policy.NOT_WITH_ALONE.intersection(axes)):
                yield axes


def _crossed(
    technique_sets: Sequence[Mapping[str, Choice]],
    batches: Sequence[Mapping[str, Choice]],
    baseline: Assignment,
) -> list[dict[str, Choice]]:
    """Each technique set at each batch; all other axes have the user's value."""
    assignments = []
    for techniques in technique_sets:
        for batch in batches:
            assignments.append({**baseline, **techniques, **batch})
    return assignments
