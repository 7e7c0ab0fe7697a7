"""The comparison of two runs: configurations are matched, and each kind of change is looked for.

The speed of host-bound rows is not compared, because it is the speed of the host, nor that of rows
without a GPU, because other programs share the processor. The speed of launch-bound rows is
compared only if the hosts are equal.
"""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, get_args

from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.analysis.comparison.changes import (
    KINDS,
    Change,
    ChangeKind,
    Comparison,
    SetupDifference,
    SetupPart,
)
from orchestrator.analysis.comparison.speed import (
    Pair,
    common_shift,
    deviations,
    single_changes,
    smallest_visible,
    technique_shifts,
)
from orchestrator.analysis.configuration import Configuration, choices_of
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.loss_parity.windows import ROUNDING, loss_windows, mismatch_ratio
from orchestrator.analysis.repeatability import Pace, pace_of
from orchestrator.storage.tables.rows import Row

MAX_ERROR = 0.25
"""If the 95 % interval of a row's mean step is wider than this share, its speed is not compared."""
TOLERANCES: Mapping[str, float] = {
    "peak_allocated_bytes": 0.005,
    "device_peak_bytes": 0.01,
    "host_peak_resident_bytes": 0.05,
}
"""Memory column -> the largest relative difference that is no change; the most repeatable first.
Allocated bytes are equal in repeats. The peak of the whole GPU and that of a process vary more."""
VERSIONS: tuple[SetupPart, ...] = ("environment", "model", "data", "training_arguments")
"""If one of these differs, the losses of a configuration may differ by more than rounding."""
Key = tuple[tuple[str, str], ...]
"""The choices that depart from the defaults, in order of their axes."""
Tried = dict[Key, Configuration | Row]
"""What became of each configuration of a run: measured, or the row of a trial that failed."""


def compare(before: Dataset, after: Dataset, *, different_hosts: bool = False) -> Comparison:
    """Match two runs by configuration. The caller decides whether their hardware may be compared.
    ``different_hosts``: even if the hosts differ, compare speeds that depend partly on the host."""
    earlier, later = _tried(before), _tried(after)
    pairs = list(_pairs(earlier, later))
    set_up = tuple(differences(before, after))
    differing = {difference.part for difference in set_up}
    by_pace = _by_pace(pairs)
    gpu_bound, other_hosts = by_pace[Pace.GPU], by_pace[Pace.LAUNCHES]
    gpu_deviations = judged = deviations(gpu_bound)
    if different_hosts or "host" not in differing:
        judged, other_hosts = [*gpu_deviations, *deviations(other_hosts)], []
    changes = [
        *single_changes(before, judged),
        *_outcome_changes("regressed", before, earlier, later),
        *_outcome_changes("fixed", after, later, earlier),
        *_memory_changes(before, pairs),
        *_loss_changes(before, after, pairs, differing),
    ]
    return Comparison(
        matched=len(pairs),
        unsteady=len(pairs) - sum(map(len, by_pace.values())),
        host_bound=len(by_pace[Pace.HOST]),
        without_gpu=len(by_pace[Pace.CPU]),
        other_hosts=len(other_hosts),
        losses_compared="measure" not in differing,
        changes=tuple(sorted(changes, key=_order)),
        shift=common_shift(gpu_bound),
        technique_shifts=tuple(technique_shifts(gpu_bound)),
        smallest_visible=smallest_visible(gpu_deviations, len(judged)),
        only_before=len(earlier.keys() - later.keys()),
        only_after=len(later.keys() - earlier.keys()),
        differences=set_up,
    )


def differences(before: Dataset, after: Dataset) -> Iterator[SetupDifference]:
    """The settings that differ. A setting that a run does not have is the same as an empty one, and
    a machine that no trial reported is the same as the other run's."""
    for part in get_args(SetupPart):
        earlier, later = _settings(before, part), _settings(after, part)
        if part == "environment" and not (earlier and later):
            continue
        for name in sorted(earlier.keys() | later.keys()):
            if (earlier.get(name) or None) != (later.get(name) or None):
                texts = (_text(part, own.get(name, "–")) for own in (earlier, later))
                yield SetupDifference(part, name, *texts)


def _text(part: SetupPart, value: Any) -> str:
    # Without a number of steps, a run trains for a whole epoch.
    nothing = "epoch" if part == "measure" else "–"
    return nothing if value is None else str(value)


def _settings(run: Dataset, part: SetupPart) -> Mapping[str, Any]:
    config = run.run.config
    # If no trial ended ok, those that failed say where they ran.
    rows = run.rows if run.main is None else [each.row for each in run.main.configurations]
    match part:
        case "environment":
            ids = Counter(row["environment_id"] for row in rows if row["environment_id"])
            usual_id, _ = next(iter(ids.most_common(1)), ("", 0))
            return run.table.environments.get(usual_id, {})
        case "measure":
            # The seed, and the steps over which the learning rate decays.
            measure = dict(config.get("measure", {}))
            machine = _settings(run, "environment")
            if machine and not machine.get("gpu_model"):
                measure |= config.get("cpu_fallback", {})
            names = ("seed", "steps", "warmup_steps")
            return {name: measure[name] for name in names if name in measure}
        case "host":
            return _host(rows)
        case _:
            return config.get(part) or {}


def _host(rows: Iterable[Row]) -> dict[str, Any]:
    cores = Counter(row["cpus"] for row in rows if row.get("cpus"))
    usual_cores, _ = next(iter(cores.most_common(1)), (None, 0))
    gpus = {row["gpu_uuid"] for row in rows if row.get("gpu_uuid")}
    return {"cores per trial": usual_cores, "GPUs in use": len(gpus)}


def _tried(run: Dataset) -> Tried:
    """Skipped configurations were not tried."""
    measured = () if run.main is None else run.main.configurations
    tried: Tried = {_key(own.choices): own for own in measured}
    for row in run.rows:
        key = _key(choices_of(row, run.axes))
        is_failed = row["outcome"] not in (Outcome.OK, Outcome.SKIPPED)
        if is_failed and not isinstance(tried.get(key), Configuration):
            tried[key] = row
    return tried


def _key(choices: Mapping[str, Any]) -> Key:
    # A run that lacks an axis of the other trained with the default of this axis.
    defaults = {axis: str(AXES[axis].default) for axis in choices if axis in AXES}
    chosen = {axis: str(value) for axis, value in choices.items()}
    return tuple(sorted(chosen.items() - defaults.items()))


def _pairs(earlier: Tried, later: Tried) -> Iterator[Pair]:
    for key, own in earlier.items():
        other = later.get(key)
        if isinstance(own, Configuration) and isinstance(other, Configuration):
            yield own, other


def _by_pace(pairs: Iterable[Pair]) -> dict[Pace, list[Pair]]:
    """The pairs whose speeds are known well enough to be judged, by what limits them."""
    # Of two that differ, the less repeatable one limits the speed: ``Pace`` has it last.
    precise = grouped(
        filter(_is_precise, pairs),
        lambda pair: max((pace_of(own.row) for own in pair), key=list(Pace).index),
    )
    return {pace: precise.get(pace, []) for pace in Pace}


def _is_precise(pair: Pair) -> bool:
    errors = [own.row.get("samples_per_second_ci95") for own in pair]
    # An error of exactly 0 is valid: on a coarse clock, all steps can take the same time.
    return all(error is not None and error < MAX_ERROR for error in errors)


def _outcome_changes(
    kind: ChangeKind, run: Dataset, tried: Tried, tried_by_other: Tried
) -> Iterator[Change]:
    """A change for each configuration that ended ok in ``run``, and failed in the other run."""
    for key, own in tried.items():
        failed = tried_by_other.get(key, own)
        if isinstance(own, Configuration) and not isinstance(failed, Configuration):
            yield Change(
                kind=kind,
                label=run.label(own.choices),
                outcome=Outcome(failed["outcome"]),
                reason=failed["reason"] or "",
            )


def _memory_changes(before: Dataset, pairs: Iterable[Pair]) -> Iterator[Change]:
    """Changes of memory, read from the first column of ``TOLERANCES`` that both rows have."""
    for earlier, later in pairs:
        shared = [each for each in TOLERANCES if earlier.row.get(each) and later.row.get(each)]
        for column in shared[:1]:
            ratio = later.row[column] / earlier.row[column]
            if abs(ratio - 1) > TOLERANCES[column]:
                yield Change(
                    kind="more memory" if ratio > 1 else "less memory",
                    label=before.label(earlier.choices),
                    before=earlier.row[column],
                    after=later.row[column],
                    ratio=ratio,
                    margin=TOLERANCES[column],
                )


def _loss_changes(
    before: Dataset, after: Dataset, pairs: Iterable[Pair], differing: Container[str]
) -> Iterator[Change]:
    """With equal versions, a mismatch is a difference larger than rounding, else than chance. With
    another seed or length of the training, only losses that are no longer finite count."""
    same_versions = not any(part in differing for part in VERSIONS)
    for earlier, later in pairs:
        old_losses = before.losses.get(earlier.trial_ids[0], ())
        new_losses = after.losses.get(later.trial_ids[0], ())
        if not old_losses or not new_losses or not all(map(math.isfinite, old_losses)):
            continue
        is_finite = all(map(math.isfinite, new_losses))
        ratio = None
        if is_finite and "measure" not in differing:
            # Equal versions draw the same random numbers, so losses may differ by rounding only.
            precision = str(earlier.choices.get("precision", "fp32"))
            rounding = ROUNDING.get(precision, 0.0) if same_versions else None
            ratio = mismatch_ratio(loss_windows(new_losses, old_losses, rounding, 0.0))
        # A changed loss is always reported, so its size is no ``ratio`` to hold to a tolerance.
        if ratio is not None or not is_finite:
            yield Change(kind="loss mismatch", label=before.label(earlier.choices), after=ratio)


def _order(change: Change) -> tuple[int, float]:
    # The logarithm makes a halving as large a change as a doubling.
    return KINDS.index(change.kind), -abs(math.log(change.ratio or 1))
