"""One trial in its own process: build, train, read back. Whatever happens ends in a record."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import errors
from jobs.flags import flag_columns, flags_of
from jobs.node import environment, gpu_fitness, memory_cap, process_group
from jobs.permissions import refusal
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from jobs.tasks import IMAGE_TOKENS
from jobs.techniques.hooks import bound, service
from jobs.trackers.tracker import Moment, Tracker, notify
from jobs.trial import requirements, trial_columns

if TYPE_CHECKING:
    import torch

    from jobs.anatomy_record import Anatomy
    from jobs.loops.contract import Setup, Trained

Announce = Callable[[str], None]
Measurements = dict[str, Any]  # column -> value
_DOING = {
    "worst_batch": "with the longest rows of the data in one batch: ",
    "evaluate": "when evaluating: ",
    "save": "when saving a checkpoint: ",
    "load_best": "when loading the best checkpoint at the end: ",
    "resume": "when resuming from a checkpoint: ",
    "merge": "when merging the adapter: ",
}
"""Phase -> what begins the reason of an error in it."""


def run(
    spec: TrialSpec, announce: Announce, *, scratch: Path, context_bytes: int = 0
) -> TrialRecord:
    """Run a trial in this process. Every exception becomes an outcome. ``announce`` gets each phase
    as it begins. ``scratch`` is where the trial's own folder is made."""
    phases = [""]

    def enter(phase: str) -> None:
        phases.append(phase)
        announce(phase)

    outcome, rule, reason = Outcome.OK, "", ""
    anatomy: Anatomy | None = None
    with ExitStack() as stack:
        trackers = [stack.enter_context(tracker) for tracker in _trackers(spec)]
        try:
            derived, anatomy = _measure(
                spec, trackers, enter, context_bytes=context_bytes, folder=scratch
            )
        except (Exception, errors.TimeUpError) as error:
            outcome, rule, reason = _failure(error, spec, phases[-1])
            derived = {"oom_requested_bytes": errors.requested_bytes(error)}
        # Whatever was measured before an error is kept.
        measurements, steps = _read(trackers)
    measurements |= derived
    # Failed trials get the flags for other processes on the GPU, too.
    flags = (*flags_of(measurements), *gpu_fitness.sharing_flags(measurements, spec.settings))
    return TrialRecord(
        spec=spec,
        outcome=outcome,
        rule=rule,
        reason=reason,
        phase="" if outcome is Outcome.OK else phases[-1],
        measurements={**measurements, **flag_columns(flags)},
        steps=steps,
        anatomy=anatomy,
        environment=environment.describe(),
    )


def _failure(error: BaseException, spec: TrialSpec, phase: str) -> tuple[Outcome, str, str]:
    outcome, rule, reason = errors.classify(error)
    if outcome is Outcome.FAILED:  # no known outcome
        traceback.print_exception(error)
    if outcome is Outcome.OUT_OF_MEMORY and (cap := memory_cap.of(spec)):
        reason = f"{memory_cap.in_words(cap)}: {reason}"
    return outcome, rule, _DOING.get(phase, "") + reason


def _trackers(spec: TrialSpec) -> list[Tracker]:
    """New instruments for a trial. Without inspection, no operator is looked at."""
    from jobs.trackers import TRACKERS, Operators

    return [kind() for kind in TRACKERS if spec.measure.inspect or kind is not Operators]


def _measure(
    spec: TrialSpec,
    trackers: Sequence[Tracker],
    enter: Announce,
    *,
    context_bytes: int,
    folder: Path,
) -> tuple[Measurements, Anatomy | None]:
    from jobs.trial import upkeep_peaks
    from jobs.trial.assembly import assemble

    begin = time.perf_counter()
    device = _prepared_device(spec, trackers, enter, context_bytes)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=folder) as scratch:
        setup, lengths = assemble(spec, trackers, enter, device, scratch)
        setup_seconds = time.perf_counter() - begin
        # The training loop that the trial's techniques name.
        train = bound(spec, "loop")
        assert train is not None
        trained: Trained = train(setup)
        if lengths is not None:
            enter("worst_batch")
            upkeep_peaks.train_worst_batch(trained, lengths, trackers, spec)
        notify(trackers, Moment.TRAIN_END, device)
        # Everything that follows may use memory: the peaks are read before it.
        values = {**_read(trackers)[0], "setup_seconds": setup_seconds}
        values |= _image_tokens(setup, spec)
        enter("inspection")
        values = _examined(spec, trained, values, trackers)
        anatomy = None
        if spec.measure.profile:
            enter("profile")
            values, anatomy = _profile(trained, values, spec)
        if spec.measure.gradients:
            enter("gradients")
            values |= _gradients(trained, setup, spec, device)
        if spec.measure.evaluate_and_save:
            # Last of all, because what is loaded and merged changes the weights.
            actions = upkeep_peaks.actions(trained, setup, lengths, spec.measure.upkeep)
            values = upkeep_peaks.measure(actions, values, enter)
        return values, anatomy


def _prepared_device(
    spec: TrialSpec, trackers: Sequence[Tracker], enter: Announce, context_bytes: int
) -> torch.device:
    """The trial's device with its CUDA context. UnsupportedError for an unmet requirement."""
    import torch

    from jobs.trial.assembly import cores

    enter("requirements")
    # First of all: what the CUDA context takes counts as the trial's.
    for tracker in trackers:
        tracker.start(context_bytes)
    if reason := refusal(spec):
        raise errors.UnsupportedError("permissions", reason)
    requirements.check(spec.settings.requires, spec)
    torch.set_num_threads(cores(spec))
    enter("context")
    if set_allocator := bound(spec, "allocator"):
        set_allocator()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.ones((1, 1), device=device)  # creates the context
    notify(trackers, Moment.CONTEXT, device)
    if cap := memory_cap.of(spec):
        memory_cap.impose(cap, _read(trackers)[0].get("gpu_context_bytes"))
    if spec.world_size > 1:
        enter("rendezvous")
        process_group.join(spec.world_size, spec.measure.timeout_seconds)
    return device


def _examined(
    spec: TrialSpec, trained: Trained, values: Measurements, trackers: Sequence[Tracker]
) -> Measurements:
    from jobs.trial import effective_config, upkeep_peaks
    from jobs.trial.row_isolation import check_rows_are_separate

    check_rows_are_separate(trained, spec)
    if spec.measure.inspect:
        values = effective_config.inspect(trained) | values
    values = upkeep_peaks.with_worst_batch(values, trackers)
    values |= _loss_scaling(trained)
    values |= trial_columns.derived(values, spec, trained.accelerator.device.type)
    return values | trial_columns.like_the_hf_guide(trained, values)


def _image_tokens(setup: Setup, spec: TrialSpec) -> Measurements:
    """How many tokens of a sample are images; empty for data without images in texts."""
    from jobs.trial import models

    if spec.model.task not in IMAGE_TOKENS:
        return {}
    config = models.architecture_config(spec.model)
    count = service(IMAGE_TOKENS[spec.model.task])(setup.dataset, config)
    return {"image_tokens_per_sample": count}


def _loss_scaling(trained: Trained) -> Measurements:
    """What divides the loss of an accumulated step, and how exactly; errors cost only the check."""
    if trained.loss_scaling is None:
        return {}
    values: Measurements = {"accumulation_loss_scaling": trained.loss_scaling}
    try:
        check = trained.accumulated_loss_ratio
        if check is not None and (ratio := check()) is not None:
            values["accumulation_loss_ratio"] = ratio
    except Exception:
        traceback.print_exc()
    return values


def _profile(
    trained: Trained, values: Measurements, spec: TrialSpec
) -> tuple[Measurements, Anatomy | None]:
    """Add the trial's anatomy. All else is measured: an error here costs only the anatomy."""
    from jobs.anatomy.profile import profile

    begin = time.perf_counter()
    anatomy = None
    try:
        if spec.world_size > 1:
            raise errors.UnsupportedError("profile", "a trial of several ranks is not profiled")
        anatomy = profile(trained, values)
    except Exception as error:
        traceback.print_exc()
        values = {**values, "anatomy_missing": errors.classify(error)[2]}
    return {**values, "anatomy_seconds": time.perf_counter() - begin}, anatomy


def _gradients(
    trained: Trained, setup: Setup, spec: TrialSpec, device: torch.device
) -> Measurements:
    """The comparison of gradients, or why there is none; an error costs only the comparison."""
    from jobs.trial.assembly import reference_model
    from jobs.trial.gradients.check import compare
    from jobs.trial.gradients.reference import NotComparableError

    begin = time.perf_counter()
    try:
        check = compare(trained, spec, lambda: reference_model(spec, setup, device))
        values = check.measurements()
    except NotComparableError as error:
        values = {"gradients_missing": str(error)}
    except Exception as error:
        traceback.print_exc()
        values = {"gradients_missing": errors.classify(error)[2]}
    return {**values, "gradient_seconds": time.perf_counter() - begin}


def _read(trackers: Sequence[Tracker]) -> tuple[Measurements, dict[str, list[float]]]:
    """All trackers' columns and series; a tracker that cannot read its instrument adds nothing."""
    # Later trackers win, but no two declare the same column.
    measurements: Measurements = {}
    series: dict[str, list[float]] = {}
    for tracker in trackers:
        try:
            measurements |= tracker.measurements()
            series |= tracker.series()
        except RuntimeError as error:  # after a CUDA error every further call raises it again
            print(f"{type(tracker).__name__} could not be read: {error}", flush=True)
    return measurements, series
