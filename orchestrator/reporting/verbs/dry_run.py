"""What a sweep will do, in words and as JSON: the output of ``--dry-run``."""

from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

from jobs.spec import MeasureSpec, TrialSpec
from jobs.steady_state import wanted_error
from jobs.tasks import SPEECH
from jobs.techniques import AXES
from orchestrator.analysis.grouping import grouped
from orchestrator.labels import trial_label
from orchestrator.planning.choices.axes import ACCUMULATION, EFFECTIVE_BATCH, SEQUENCE_LENGTH
from orchestrator.planning.plan import Plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import count, duration, error, memory

_SHOWN_TRIALS = 8
_SHOWN_VALUES = 12


def describe(plan: Plan, config: SweepConfig, model_facts: Iterable[tuple[str, str]] = ()) -> str:
    """How many trials over which axes, what is ruled out and why, and where the results go.
    ``model_facts`` are names and texts about the model, which come first."""
    model = config.model
    weights = model.name_or_path
    if model.architecture:
        weights = f"{model.architecture}, random weights"
    lines = [f"{config.name}: {model.task} ({weights}) on {_data(config)}"]
    lines += _table([*model_facts, *_facts(plan, config)])
    counts = Counter((record.rule, record.reason) for record in plan.ruled_out)
    if counts:
        listed = [(rule, f"{n} × {reason}") for (rule, reason), n in counts.most_common()]
        lines += ["\nruled out", *_table(listed)]
    return visible("\n".join([*lines, *_first_trials(plan, config)]))


def _first_trials(plan: Plan, config: SweepConfig) -> Iterator[str]:
    if not plan.trials:
        yield "\nno trial is left"
        return
    left_out = len(plan.trials) - _SHOWN_TRIALS
    yield "\nfirst trials" if left_out > 0 else "\ntrials"
    for own in plan.trials[:_SHOWN_TRIALS]:
        yield f"  {own.trial_id}  {trial_label(own, config.axes_in_play)}"
    if left_out > 0:
        yield f"  … and {left_out:,} more"


def to_json(plan: Plan, config: SweepConfig) -> dict[str, Any]:
    """The same as plain JSON values, with every trial."""
    return {
        "name": config.name,
        "output": str(config.output),
        "search": config.search.kind,
        "budgets": list(config.budgets),
        "trials": [_trial_json(trial, config) for trial in plan.trials],
        "ruled_out": [
            {**_trial_json(own.spec, config), "rule": own.rule, "reason": own.reason}
            for own in plan.ruled_out
        ],
    }


def _trial_json(trial: TrialSpec, config: SweepConfig) -> dict[str, Any]:
    return {
        "trial_id": trial.trial_id,
        "label": trial_label(trial, config.axes_in_play),
        "choices": dict(trial.choices),
        "effective_batch": trial.effective_batch,
        "repeat": trial.repeat,
    }


def _data(config: SweepConfig) -> str:
    if config.data.file is not None:
        return config.data.file.path
    synthetic = config.data.synthetic
    assert synthetic is not None
    if config.model.task == "image-classification":
        return f"{synthetic.samples} synthetic images"
    has_images = config.model.task == "image-text-to-text"
    images = f" with {count(synthetic.images, 'image')} each" if has_images else ""
    kind = "sounds with transcripts" if config.model.task in SPEECH else "samples"
    samples = f"{synthetic.samples} synthetic {kind}{images}"
    if SEQUENCE_LENGTH in config.axes:
        return f"{samples}, whose length is an axis"
    length = synthetic.sequence_length
    if synthetic.lengths is not None:
        return f"{samples} of {synthetic.lengths.mean:g} tokens in the mean, at most {length}"
    targets = synthetic.target_length and f" with targets of {synthetic.target_length}"
    return f"{samples}{' in a text' if has_images else ''} of {length} tokens{targets or ''}"


def _facts(plan: Plan, config: SweepConfig) -> Iterator[tuple[str, str]]:
    ruled_out = f", {len(plan.ruled_out)} ruled out" if plan.ruled_out else ""
    yield "plan", f"{count(len(plan.trials), 'trial')}{ruled_out}"
    if config.repeats > 1:
        yield "", f"each configuration {config.repeats} times"
    yield from _axes(plan, config)
    gpus = config.resources.gpus_per_trial
    if gpus > 1 and all(trial.world_size == 1 for trial in plan.trials):
        yield "GPUs", f"{gpus} reserved, and one used: values of the axis sharding use all"
    for measure in sorted({trial.measure for trial in plan.trials}, key=repr):
        yield "measure", _measure(measure)
    if config.budgets:
        yield "budgets", ", ".join(map(memory, config.budgets))
    yield "search", config.search.kind
    yield from _follow_ups(config)
    if config.loggers:
        yield "loggers", ", ".join(config.loggers)
    yield "output", str(config.output)


def _axes(plan: Plan, config: SweepConfig) -> Iterator[tuple[str, str]]:
    follows = {ACCUMULATION} if EFFECTIVE_BATCH in config.baseline else set()
    if follows:
        sizes = sorted({trial.effective_batch for trial in plan.trials})
        yield EFFECTIVE_BATCH, _listed(list(map(str, sizes)))
    specs = [*plan.trials, *(record.spec for record in plan.ruled_out)]
    chosen = dict.fromkeys(choice for spec in specs for choice in spec.choices.items())
    # A fraction is left out: a rule forbids an accumulation that is not whole.
    whole = [own for own in chosen if own[0] != ACCUMULATION or isinstance(own[1], int)]
    always = []
    for axis, values in grouped(whole, itemgetter(0)).items():
        planned = list(dict.fromkeys(str(value) for _, value in values))
        if len(planned) > 1:
            yield axis, _listed(planned)
        elif axis in AXES.keys() - follows and values[0][1] != AXES[axis].default:
            always.append(f"{axis}: {planned[0]}")
    if always:
        yield "always", ", ".join(always)


def _follow_ups(config: SweepConfig) -> Iterator[tuple[str, str]]:
    policy = config.follow_up
    wanted = []
    if config.budgets and policy.verify_budgets:
        wanted.append("each budget's pick verified under a memory cap")
    if config.budgets and policy.check_gradients:
        wanted.append("its gradients compared with fp32")
    if config.budgets and policy.tie_break_rounds:
        rounds = count(policy.tie_break_rounds, "interleaved round")
        wanted.append(f"close candidates in up to {rounds}")
    if policy.profiles:
        wanted.append(f"up to {count(policy.profiles, 'frontier configuration')} profiled")
    if wanted:
        share = f"{policy.slot_share * 100:.0f} % of the search's slot time"
        yield "follow-ups", f"on a GPU: {', '.join(wanted)}"
        yield "", f"at most {share}, or {duration(policy.min_seconds)}"


def _listed(values: list[str]) -> str:
    left_out = len(values) - _SHOWN_VALUES
    if left_out <= 1:
        return ", ".join(values)
    return f"{', '.join(values[:_SHOWN_VALUES])} … and {left_out} more"


def _measure(measure: MeasureSpec) -> str:
    steps = "one epoch" if measure.steps is None else count(measure.steps, "step")
    warmup = count(measure.warmup_steps, "warm-up step")
    early = ""
    if measure.relative_error:
        early = f", fewer once the speed is known to {error(measure.relative_error)}"
        without_gpu = wanted_error(measure.relative_error, "cpu")
        if without_gpu != measure.relative_error:
            early += f" ({error(without_gpu)} without a GPU)"
    return f"{steps} after {warmup}{early}; timeout {duration(measure.timeout_seconds)}"


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    for name, text in listed:
        yield f"  {name:<{width}}  {text}"
