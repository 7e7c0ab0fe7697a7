"""The configurations that ``tune`` chooses from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.planning.choices.axes import ACCUMULATION, EFFECTIVE_BATCH, MICRO_BATCH, Choices
from orchestrator.planning.plan import Plan, RuleCheck, chosen_variants, plan, world_size_of
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.technique_sets import quick_measure
from orchestrator.planning.tune_space import policy
from orchestrator.planning.tune_space.combinations import (
    Combinations,
    Obstacle,
    TechniqueSet,
    TriedValues,
    combinations,
)
from orchestrator.planning.tune_space.values import (
    DOES_NOT_GO,
    IsMissing,
    Recipe,
    Values,
    listed_values,
    usual_value,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """The request to ``tune``."""

    budgets: tuple[int, ...] = ()
    """Memory budgets in bytes; empty: the memory of the GPU."""
    effective_batch: int | None = None
    """Samples per optimizer step; None: as in the user's arguments if they accumulate, else any."""
    recipe: Recipe = "own"


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
    """The space for the user's configuration, of at most ``limit`` configurations; pure."""
    effective_batch = goal.effective_batch or _own_effective_batch(config)
    tuned = replace(
        config.of_trials(()),
        baseline=_with_accumulation(config),
        budgets=goal.budgets or config.budgets,
        measure=quick_measure(config.measure),
    )
    values = listed_values(tuned, recipe=goal.recipe, has_gpu=has_gpu, is_missing=is_missing)
    chosen = combinations(
        _around(values.tried),
        _obstacle(tuned),
        effective_batch=effective_batch,
        has_gpu=has_gpu,
        limit=limit,
    )
    values = values.without(_reasons(chosen, values, tuned))
    own = tuned.baseline
    # The user's own training comes first, because everything is compared with it.
    trials = (own, *_crossed(chosen, values.tried, tuned, effective_batch))
    planned = plan(replace(tuned, trials=trials), has_gpu=has_gpu)
    return TuneSpace(
        config=replace(tuned, axes=_shown_axes(values, chosen)),
        plan=planned,
        effective_batch=effective_batch,
        not_tried=values.not_tried,
    )


def _around(tried: TriedValues) -> TriedValues:
    """The values with that of ``policy.AROUND`` first, where it is tried."""
    firsts = {axis: value for axis, value in policy.AROUND.items() if value in tried[axis]}
    return {
        axis: tuple(dict.fromkeys((firsts.get(axis, listed[0]), *listed)))
        for axis, listed in tried.items()
    }


def _crossed(
    chosen: Combinations, tried: TriedValues, config: SweepConfig, effective_batch: int | None
) -> Iterator[Choices]:
    """Every set at every batch, but those with which its GPUs miss the effective batch."""
    for techniques in chosen.technique_sets:
        own = {**config.baseline, **techniques, **_fewer_lengths(techniques, tried, config)}
        gpus = world_size_of(own, config)
        for batch in chosen.batches:
            choices = {**own, **batch}
            # The batches are those of one GPU.
            accumulation = batch[ACCUMULATION]
            if effective_batch is not None and isinstance(accumulation, int):
                choices[ACCUMULATION] = accumulation // gpus
                if accumulation % gpus:
                    continue
            yield choices


def _fewer_lengths(
    techniques: TechniqueSet, tried: TriedValues, config: SweepConfig
) -> Mapping[str, Choice]:
    """The batching of a compiled set, by ``policy.COMPILED_BATCHING``; empty if it stays."""
    own = config.baseline
    is_default = techniques["batching"] == AXES["batching"].default
    # A collator of the user's may not pad to a multiple.
    may_change = policy.COMPILED_BATCHING in tried["batching"] and config.own_code is None
    if may_change and is_default and techniques["compile"] != own["compile"]:
        return {"batching": policy.COMPILED_BATCHING}
    return {}


def _obstacle(config: SweepConfig) -> Obstacle:
    rules = RuleCheck(config)
    (alone,), (kept,) = policy.EXCEPT
    own = config.baseline[alone]
    together = (own, usual_value(alone, own))

    def obstacle(techniques: TechniqueSet) -> str:
        if techniques[kept] != config.baseline[kept] and techniques[alone] not in together:
            return f"{alone} and {kept} are not changed together"
        for (axis, value, other), reason in policy.NOT_TOGETHER.items():
            pair = (axis, other)
            is_own = all(techniques[name] == config.baseline[name] for name in pair)
            has_both = techniques[axis] == value and techniques[other] != AXES[other].default
            if has_both and not is_own:
                return reason
        # Some rules forbid accumulation, and none needs it.
        choices = {**config.baseline, **techniques, ACCUMULATION: 1}
        _, reason = rules.forbidding(choices, chosen_variants(choices, config)) or ("", "")
        return reason

    return obstacle


def _reasons(
    chosen: Combinations, values: Values, config: SweepConfig
) -> dict[tuple[str, Choice], str]:
    reasons = {}
    for (axis, value), obstacle in chosen.obstacles.items():
        reason = f"{DOES_NOT_GO}: {obstacle}"
        if _runs_with_another(axis, value, values, config):
            reason = "runs only together with other techniques, and the space has no room for both"
        reasons[axis, value] = reason
    return reasons


def _runs_with_another(axis: str, value: Choice, values: Values, config: SweepConfig) -> bool:
    own = {name: listed[0] for name, listed in values.tried.items()}
    obstacle = _obstacle(config)
    return any(
        not obstacle({**own, axis: value, other: choice})
        for other, listed in values.tried.items()
        for choice in listed
        if other != axis
    )


def _shown_axes(values: Values, chosen: Combinations) -> dict[str, tuple[Choice, ...]]:
    sizes = {
        axis: dict.fromkeys(batch[axis] for batch in chosen.batches)
        for axis in (MICRO_BATCH, ACCUMULATION)
    }
    axes = {**sizes, **values.tried}
    return {axis: tuple(listed) for axis, listed in axes.items() if len(listed) > 1}


def _own_effective_batch(config: SweepConfig) -> int | None:
    baseline = config.baseline
    named = baseline.get(EFFECTIVE_BATCH)
    if isinstance(named, int):
        return named
    micro_batch, accumulation = baseline[MICRO_BATCH], baseline.get(ACCUMULATION, 1)
    if isinstance(micro_batch, int) and isinstance(accumulation, int) and accumulation > 1:
        return micro_batch * accumulation * world_size_of(baseline, config)
    return None


def _with_accumulation(config: SweepConfig) -> dict[str, Choice]:
    choices = dict(config.baseline)
    effective_batch = choices.pop(EFFECTIVE_BATCH, None)
    micro_batch = choices[MICRO_BATCH]
    if isinstance(effective_batch, int) and isinstance(micro_batch, int):
        samples = micro_batch * world_size_of(choices, config)
        choices[ACCUMULATION] = max(1, effective_batch // samples)
    return choices
