"""What a sweep will do, in words and as JSON: the output of ``--dry-run``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from jobs.spec import MeasureSpec, TrialSpec
from orchestrator.planning.axes import ACCUMULATION, EFFECTIVE_BATCH
from orchestrator.planning.plan import Plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.units import memory

_SHOWN = 8
_VALUES = 12


def describe(plan: Plan, config: SweepConfig) -> str:
    """How many trials over which axes, what is ruled out and why, and where the results will be."""
    return "\n".join(
        (
            f"{config.name}: {_subject(config)}",
            *_table(_facts(plan, config)),
            *_ruled_out(plan),
            *_sample(plan.trials, config),
        )
    )


def to_json(plan: Plan, config: SweepConfig) -> dict[str, Any]:
    """The same as plain JSON values, every trial named."""
    return {
        "name": config.name,
        "output": str(config.output),
        "search": config.search.kind,
        "budgets": list(config.budgets),
        "trials": [_trial(trial) for trial in plan.trials],
        "ruled_out": [
            {**_trial(record.spec), "rule": record.rule, "reason": record.reason}
            for record in plan.ruled_out
        ],
    }


def _trial(trial: TrialSpec) -> dict[str, Any]:
    return {
        "trial_id": trial.trial_id,
        "choices": dict(trial.choices),
        "effective_batch": trial.effective_batch,
        "repeat": trial.repeat,
    }


def _subject(config: SweepConfig) -> str:
    model = config.model
    weights = f"{model.architecture}, random weights" if model.architecture else model.name_or_path
    synthetic, file = config.data.synthetic, config.data.file
    if file is not None:
        data = file.path
    elif synthetic is not None and model.task != "image-classification":
        data = f"{synthetic.samples} synthetic samples of {synthetic.sequence_length} tokens"
    else:
        data = f"{synthetic.samples if synthetic else 0} synthetic images"
    return f"{model.task} ({weights}) on {data}"


def _facts(plan: Plan, config: SweepConfig) -> Iterator[tuple[str, str]]:
    runs = _count(len(plan.trials), "trial")
    yield "plan", f"{runs}, {len(plan.ruled_out)} ruled out" if plan.ruled_out else runs
    if config.repeats > 1:
        yield "", f"each configuration {config.repeats} times"
    if EFFECTIVE_BATCH in config.baseline:
        yield (
            EFFECTIVE_BATCH,
            _some([str(size) for size in sorted({t.effective_batch for t in plan.trials})]),
        )
    for axis, values in _values(plan).items():
        if len(values) > 1:
            yield axis, _some(list(values))
    measures = {trial.measure for trial in plan.trials}
    for measure in sorted(measures, key=repr):
        yield "measure", _measure(measure)
    if config.budgets:
        yield "budgets", ", ".join(map(memory, config.budgets))
    yield "search", config.search.kind
    if again := list(_follow_ups(config)):
        limit = f"{config.follow_ups.share:.0%} of the search's slot time or {config.follow_ups.least_seconds:g} s"
        yield "follow-ups", f"on a GPU: {', '.join(again)}; at most {limit}"
    yield "output", str(config.output)


def _follow_ups(config: SweepConfig) -> Iterator[str]:
    wanted = config.follow_ups
    if config.budgets and wanted.verify:
        yield "each budget's pick under its cap"
    if config.budgets and wanted.turns:
        yield "close candidates in turns"
    if wanted.anatomies:
        yield f"up to {wanted.anatomies} of the frontier taken apart"


def _values(plan: Plan) -> dict[str, dict[str, None]]:
    """Axis -> the values planned on it, in order of appearance."""
    values: dict[str, dict[str, None]] = {}
    for spec in (*plan.trials, *(record.spec for record in plan.ruled_out)):
        for axis, choice in spec.choices.items():
            if axis != ACCUMULATION or isinstance(
                choice, int
            ):  # else a fraction that no effective batch allows
                values.setdefault(axis, {})[str(choice)] = None
    return values


def _some(values: list[str]) -> str:
    more = len(values) - _VALUES
    return ", ".join(values) if more <= 1 else f"{', '.join(values[:_VALUES])} … and {more} more"


def _measure(measure: MeasureSpec) -> str:
    steps = "one epoch" if measure.steps is None else _count(measure.steps, "step")
    warm_up = _count(measure.warmup_steps, "warm-up step")
    early = (
        f", fewer once the speed is known to ±{measure.relative_error:.1%}"
        if measure.relative_error
        else ""
    )
    return f"{steps} after {warm_up}{early}; stopped after {measure.timeout_seconds:g} s"


def _ruled_out(plan: Plan) -> Iterator[str]:
    counts = Counter((record.rule, record.reason) for record in plan.ruled_out)
    if counts:
        yield "\nruled out"
        yield from _table(
            (rule, f"{number} × {reason}") for (rule, reason), number in counts.most_common()
        )


def _sample(trials: Sequence[TrialSpec], config: SweepConfig) -> Iterator[str]:
    yield "\nfirst trials" if len(trials) > _SHOWN else "\ntrials"
    for trial in trials[:_SHOWN]:
        yield f"  {trial.trial_id}  {_label(trial, config)}"
    if len(trials) > _SHOWN:
        yield f"  … and {len(trials) - _SHOWN:,} more"


def _label(trial: TrialSpec, config: SweepConfig) -> str:
    """A grid's trials by every axis in play; lone trials by what sets them apart from the baseline."""
    base = {} if config.axes or config.subsets else config.baseline
    varying = {*config.axes_in_play} | (
        {ACCUMULATION} if EFFECTIVE_BATCH in config.baseline else set()
    )
    parts = [
        f"{axis}={value}"
        for axis, value in trial.choices.items()
        if axis in varying and base.get(axis) != value
    ]
    parts += [f"repeat={trial.repeat}"] if config.repeats > 1 else []
    return " ".join(parts) or "as the baseline"


def _table(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    for name, text in listed:
        yield f"  {name:<{width}}  {text}"


def _count(amount: int, noun: str) -> str:
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"
