"""Technique sets: configurations apart from their batch, and their trials at any batch."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from jobs.record import TrialRecord
from jobs.spec import Choice, MeasureSpec, TrialSpec
from orchestrator.labels import BATCH_NAMES, label
from orchestrator.planning.choices.axes import ACCUMULATION, MICRO_BATCH, Choices
from orchestrator.planning.plan import plan, world_size_of
from orchestrator.planning.settings import SweepConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniqueSet:
    """A choice on every axis but the batch's; ``label`` tells it from the others of its file."""

    label: str
    choices: Choices

    def trial(
        self,
        config: SweepConfig,
        micro_batch: int,
        accumulation: int,
        *,
        has_gpu: bool,
        relative_error: float = 0.01,
    ) -> TrialSpec | TrialRecord:
        """The set at a batch, or the record that says which rule forbids it. On a GPU it is
        measured in few steps, the speed to within ``relative_error``. Without a GPU it is measured
        as the config says, because there the inspection measures the memory."""
        # A config with this one trial and nothing else is planned like any other.
        choices = {**self.choices, MICRO_BATCH: micro_batch, ACCUMULATION: accumulation}
        planned = plan(config.of_trials((choices,)), has_gpu=has_gpu)
        if planned.ruled_out:
            return planned.ruled_out[0]
        (spec,) = planned.trials
        return replace(spec, measure=_quick_measure_at(spec, relative_error)) if has_gpu else spec


def sets_to_tune(
    config: SweepConfig,
    effective_batch: int | None = None,
    *,
    every: bool = False,
    named: Iterable[str] = (),
) -> tuple[tuple[TechniqueSet, ...], int | None]:
    """The technique sets whose batch to tune, and the effective batch to reach: the given one, else
    the configuration's. Choices such as "precision=bf16" that the caller has ``named`` are in the
    labels. Raises ValueError for an effective batch of several GPUs."""
    axes = [choice.partition("=")[0] for choice in named]
    sets = technique_sets(config, axes, every=every)
    configured = config.baseline.get("effective_batch")
    if effective_batch is None and isinstance(configured, int):
        effective_batch = configured
    is_shared = any(world_size_of(one.choices, config) > 1 for one in sets)
    if effective_batch is not None and is_shared:
        raise ValueError("an effective batch of several GPUs is found by tune, which shares it out")
    return sets, effective_batch


def technique_sets(
    config: SweepConfig, named: Iterable[str] = (), *, every: bool = False
) -> tuple[TechniqueSet, ...]:
    """The technique sets whose batch to tune: ``every`` set of the plan; else each that a file
    without axes names in its trials, if they are few; else the baseline. Each axis that tells one
    set from another, or that is ``named``, is in the label."""
    varying = dict.fromkeys((*config.axes_in_play, *named))
    axes = [axis for axis in varying if axis not in BATCH_NAMES]
    sets = _distinct(_candidates(config, every=every))
    return tuple(TechniqueSet(label=label(choices, axes), choices=choices) for choices in sets)


def _candidates(config: SweepConfig, *, every: bool) -> list[Choices]:
    # A list of single trials is a list of techniques to tune, as long as it is short.
    names_sets = bool(config.trials) and not config.axes and not config.subsets
    if not every and not names_sets:
        return [config.baseline]
    planned: list[Choices] = [trial.choices for trial in plan(config).trials]
    return planned if every or len(_distinct(planned)) <= 12 else [config.baseline]


def _distinct(candidates: Iterable[Choices]) -> list[Choices]:
    distinct: dict[tuple[tuple[str, type, Choice], ...], Choices] = {}
    for choices in candidates:
        techniques = {axis: value for axis, value in choices.items() if axis not in BATCH_NAMES}
        # By type, too: to Python the choices 1, 1.0 and True are equal.
        identity = tuple((axis, type(value), value) for axis, value in sorted(techniques.items()))
        distinct.setdefault(identity, techniques)
    return list(distinct.values())


def _quick_measure_at(spec: TrialSpec, relative_error: float) -> MeasureSpec:
    # What is read back depends on no size, so small batches are enough. They have short steps, of
    # which the second is slow, too.
    is_small = spec.measure.inspect and spec.effective_batch <= 16
    return replace(
        quick_measure(spec.measure, warmup_steps=2 if is_small else 1),
        relative_error=max(spec.measure.relative_error, relative_error),
        inspect=is_small,
    )


def quick_measure(measure: MeasureSpec, *, warmup_steps: int = 2, steps: int = 5) -> MeasureSpec:
    """At most as many steps as a steady speed needs, for searches that measure many trials."""
    return replace(
        measure,
        warmup_steps=min(measure.warmup_steps, warmup_steps),
        steps=min(measure.steps or steps, steps),
        profile=False,
    )
