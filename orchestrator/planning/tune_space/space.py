"""The configurations that ``tune`` chooses from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.spec import Choice
from jobs.techniques import AXES, Variant
from orchestrator.planning.axes import ACCUMULATION, EFFECTIVE_BATCH, MICRO_BATCH, Assignment
from orchestrator.planning.base_arguments import CUSTOM
from orchestrator.planning.plan import Plan, plan
from orchestrator.planning.settings import SearchChoice, SweepConfig
from orchestrator.planning.tune_space import policy, sizes
from orchestrator.planning.tune_space.own_values import with_own_values

BATCH_AXES = (MICRO_BATCH, ACCUMULATION)
_STEPS = 5
_WARMUP_STEPS = 2
"""Few steps suffice for a steady speed, and the search measures many configurations."""

_FEW_CHANGES = 3
"""With so few changed axes at a time, even a coarse choice of sizes is taken."""

IsMissing = Callable[[Variant], bool]
"""Whether this machine surely lacks what a technique requires."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What is asked of ``tune``."""

    budgets: tuple[int, ...] = ()
    """Bytes; none: the GPU's own memory."""
    effective_batch: int | None = None
    """Samples per optimizer step; None: the user's own where they accumulate, else any."""
    any_recipe: bool = False
    """Whether techniques that train differently are tried, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneSpace:
    """A configuration with its axes filled in, and its plan."""

    config: SweepConfig
    plan: Plan
    effective_batch: int | None
    """What every configuration reaches; None: any."""
    not_tried: Mapping[str, Mapping[str, str]]
    """Axis -> value -> why it is no part of the space."""


def tune_space(
    config: SweepConfig,
    goal: Goal,
    *,
    has_gpu: bool,
    is_missing: IsMissing,
    limit: int = policy.MAX_CONFIGURATIONS,
) -> TuneSpace:
    """The space of a configuration, at most ``limit`` configurations. Pure and deterministic."""
    baseline, arguments = with_own_values(config.baseline, config.training_arguments)
    effective_batch = goal.effective_batch or _own_effective_batch(baseline)
    baseline = _with_accumulation(baseline)
    values, not_tried = _values(baseline, goal, is_missing)
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
    # The user's own training comes first, at its own batch: everything is compared with it.
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
    """Axis -> its values in the space, for the axes that have several."""
    axes: dict[str, tuple[Choice, ...]] = {}
    for axis in BATCH_AXES:
        axes[axis] = tuple(dict.fromkeys(assignment[axis] for assignment in assignments))
    axes |= values
    return {axis: listed for axis, listed in axes.items() if len(listed) > 1}


def _own_effective_batch(baseline: Mapping[str, Choice]) -> int | None:
    """The effective batch of a user who accumulates; None for one who does not."""
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
    baseline: Mapping[str, Choice], goal: Goal, is_missing: IsMissing
) -> tuple[dict[str, tuple[Choice, ...]], dict[str, dict[str, str]]]:
    """Axis -> the values to try, the user's own first; and why the others are not tried."""
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
            if reason:
                not_tried.setdefault(name, {})[value] = reason
            else:
                chosen.append(value)
        values[name] = tuple(chosen)
    return values, not_tried


def _why_not(axis: str, value: str, own: Choice, goal: Goal, is_missing: IsMissing) -> str:
    """Why a value is no part of the space; empty if it is."""
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
    """The largest space within the limit: first with fewer sizes, then with fewer changes."""
    free = sum(len(listed) > 1 for listed in values.values())
    for changes in range(free, -1, -1):
        count = _technique_count(values, changes)
        for per_octave in sizes.STEPS_PER_OCTAVE:
            batches = _batches(effective_batch, per_octave, has_gpu=has_gpu)
            # Rather fewer changes at a time than sizes of which the best is missing.
            is_coarse = per_octave == 1 and changes > _FEW_CHANGES
            if count * len(batches) <= limit and not is_coarse:
                return _crossed(list(_technique_sets(values, changes)), batches, baseline)
    return []


def _technique_count(values: Mapping[str, Sequence[Choice]], changes: int) -> int:
    """How many combinations ``_technique_sets`` has, without making them."""
    free = [axis for axis, listed in values.items() if len(listed) > 1]
    count = 0
    for axes in _changed_axes(free, changes):
        count += math.prod(len(values[axis]) - 1 for axis in axes)
    return count


def _batches(
    effective_batch: int | None, per_octave: int, *, has_gpu: bool
) -> list[dict[str, Choice]]:
    """The values of the batch's axes: any size alone, or each divisor of the effective batch."""
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
    """The combinations with at most ``changes`` axes that differ from the user's own."""
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
            if len(alone) < 2 and not (alone and policy.SLOW.intersection(axes)):
                yield axes


def _crossed(
    technique_sets: Sequence[Mapping[str, Choice]],
    batches: Sequence[Mapping[str, Choice]],
    baseline: Assignment,
) -> list[dict[str, Choice]]:
    """Each technique set at each batch; other axes of the user's own keep their value."""
    assignments = []
    for techniques in technique_sets:
        for batch in batches:
            assignments.append({**baseline, **techniques, **batch})
    return assignments
