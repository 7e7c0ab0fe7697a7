"""Sets of techniques apart from any batch, and their trials at any batch: what a batch-size search draws from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from jobs.record import TrialRecord
from jobs.spec import Choice, MeasureSpec, TrialSpec
from jobs.techniques import AXES
from orchestrator.planning.arguments import owned_arguments
from orchestrator.planning.axes import ACCUMULATION, EFFECTIVE_BATCH, Assignment
from orchestrator.planning.plan import plan
from orchestrator.planning.problems import advice
from orchestrator.planning.settings import SweepConfig

BATCH = ("micro_batch", ACCUMULATION, EFFECTIVE_BATCH)
FEW = 12
"""As many technique sets as a file may name in its trials for each to be tuned unasked."""
_FEW_AXES = 5

# Steps are as many as a speed that does not vary needs; a batch-size search asks for few sizes, each in seconds.
_WARMUP_STEPS, _STEPS, _RELATIVE_ERROR = 2, 5, 0.01
_INSPECTED = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniqueSet:
    """A choice on every axis but the batch's; ``label`` names those that tell it from others of its file."""

    label: str
    choices: Assignment

    def trial(
        self,
        config: SweepConfig,
        micro_batch: int,
        accumulation: int,
        *,
        has_gpu: bool,
        relative_error: float = _RELATIVE_ERROR,
    ) -> TrialSpec | TrialRecord:
        """The set at a batch, or the record of why a rule forbids it.

        On a GPU it is measured with few steps, its speed to within ``relative_error``, and only small batches are
        inspected, for what is found there does not depend on the size. Without a GPU the inspection is what measures
        memory.
        """
        lone = replace(
            config,
            axes={},
            subsets={},
            exclude=(),
            trials=({**self.choices, "micro_batch": micro_batch, ACCUMULATION: accumulation},),
            repeats=1,
        )
        planned = plan(lone, has_gpu=has_gpu)
        if planned.ruled_out:
            return planned.ruled_out[0]
        (spec,) = planned.trials
        return replace(spec, measure=_quickly(spec, relative_error)) if has_gpu else spec


def technique_sets(
    config: SweepConfig, over: Assignment, *, every: bool = False
) -> tuple[TechniqueSet, ...]:
    """What to tune the batch of: the baseline, or each set that a file without axes names in its ``trials`` (when
    they are few), or ``every`` set of the plan; ``over`` is laid over each."""
    if every:
        chosen = [trial.choices for trial in plan(config).trials]
    elif config.trials and not config.axes and not config.subsets:
        chosen = [trial.choices for trial in plan(config).trials]
        chosen = chosen if len(_distinct(chosen, over)) <= FEW else [config.baseline]
    else:
        chosen = [config.baseline]
    sets = _distinct(chosen, over)
    named = tuple(
        axis for axis in dict.fromkeys((*config.axes_in_play, *over)) if axis not in BATCH
    )
    return tuple(
        TechniqueSet(label=_label(choices, named, config), choices=choices) for choices in sets
    )


def read_choice(text: str, config: SweepConfig) -> tuple[str, Choice]:
    """``precision=bf16`` as ("precision", "bf16"). Raises ValueError for what no technique axis has, and for what the
    file's own training arguments decide."""
    axis, _, value = text.partition("=")
    axes = [name for name in AXES if name not in BATCH]
    if axis not in axes:
        raise ValueError(f'"{axis}" is not a technique axis; {advice(axis, axes)}')
    if value not in AXES[axis].variants:
        raise ValueError(f'{axis} has no "{value}"; {advice(value, list(AXES[axis].variants))}')
    own = [name for name in config.training_arguments if owned_arguments().get(name) == axis]
    if own:
        raise ValueError(
            f"{axis} is decided by training_arguments.{own[0]} in {config.path}; remove one of them"
        )
    return axis, value


def _distinct(chosen: Iterable[Assignment], over: Assignment) -> list[Assignment]:
    met: dict[tuple[object, ...], Assignment] = {}
    for choices in chosen:
        bare = {axis: value for axis, value in {**choices, **over}.items() if axis not in BATCH}
        met.setdefault(tuple((axis, type(bare[axis]), bare[axis]) for axis in sorted(bare)), bare)
    return list(met.values())


def _label(choices: Assignment, named: tuple[str, ...], config: SweepConfig) -> str:
    """Few axes: the choice on each; many: those that depart from the baseline."""
    shown = (
        named
        if len(named) <= _FEW_AXES
        else [axis for axis in named if choices[axis] != config.baseline.get(axis)]
    )
    return " ".join(f"{axis}={choices[axis]}" for axis in shown) or "the baseline"


def _quickly(spec: TrialSpec, relative_error: float) -> MeasureSpec:
    measure = spec.measure
    inspect = measure.inspect and spec.effective_batch <= _INSPECTED
    # Where a step is short the second one is slow, too.
    warmup = min(measure.warmup_steps, _WARMUP_STEPS if inspect else 1)
    steps = min(measure.steps or _STEPS, _STEPS)
    error = max(measure.relative_error, relative_error)
    return replace(
        measure,
        warmup_steps=warmup,
        steps=steps,
        relative_error=error,
        inspect=inspect,
        anatomy=False,
    )
