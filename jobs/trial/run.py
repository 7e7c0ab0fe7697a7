"""One trial, in the process that is its own: build, train, read back; whatever happens has a name."""

from __future__ import annotations

import functools
import importlib
import math
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import errors
from jobs.node import environment, gpu_sharing, memory_cap, requirements
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from jobs.trackers.base import NOTHING, Held, Moment, Tracker, tell

if TYPE_CHECKING:
    import torch

    from jobs.anatomy_record import Anatomy
    from jobs.loops.base import Setup, Trained
    from jobs.loops.meter import Meter
    from jobs.trial.data import Collator

Announce = Callable[[str], None]


def run(
    spec: TrialSpec, announce: Announce, *, isolation: str, scratch: Path, held: Held = NOTHING
) -> TrialRecord:
    """Run a trial in this process and return its record; every exception becomes an outcome.

    ``announce`` is told each phase as it begins, so that a parent can say where a dead child was. In ``scratch``,
    a folder of the trial's own comes and goes. ``held`` is what this process holds for it already.
    """
    started, begin, phases = time.time(), time.monotonic(), [""]

    def enter(name: str) -> None:
        phases.append(name)
        announce(name)

    outcome, rule, reason = Outcome.OK, "", ""
    own: dict[str, Any] = {}
    anatomy: Anatomy | None = None
    with ExitStack() as stack:
        trackers = [stack.enter_context(tracker) for tracker in _trackers(spec)]
        try:
            own, anatomy = _measured(spec, trackers, held, enter, scratch)
        except Exception as error:
            outcome, rule, reason = _ending(error, spec)
            own = {"oom_requested_bytes": errors.bytes_asked(error)}
        measurements, steps = _collected(trackers)
    return TrialRecord(
        spec=spec,
        outcome=outcome,
        rule=rule,
        reason=reason,
        phase="" if outcome is Outcome.OK else phases[-1],
        measurements=_in_all(spec, measurements, own),
        steps=steps,
        anatomy=anatomy,
        environment=environment.describe(),
        started_at=started,
        wall_seconds=time.monotonic() - begin,
        isolation=isolation,
    )


def _trackers(spec: TrialSpec) -> list[Tracker]:
    from jobs.trackers import TRACKERS, Operators

    return [kind() for kind in TRACKERS if spec.measure.inspect or kind is not Operators]


def _in_all(spec: TrialSpec, seen: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What trackers saw, what the trial says itself, where it ran, and whether it had its GPU to itself there."""
    said = {**seen, **own, **placement(spec)}
    if shared := gpu_sharing.warnings(said, spec.recipe):
        said["warnings"] = [*said.get("warnings", ()), *shared]
    return said


def _ending(error: Exception, spec: TrialSpec) -> tuple[Outcome, str, str]:
    """The outcome, rule and reason that an exception stands for; what nobody foresaw is printed whole."""
    outcome, rule, reason = errors.classify(error)
    if outcome is Outcome.FAILED:
        traceback.print_exc()
    if outcome is Outcome.OUT_OF_MEMORY and (cap := memory_cap.of(spec)):
        reason = f"{memory_cap.in_words(cap)}: {reason}"
    return outcome, rule, reason


def placement(spec: TrialSpec) -> dict[str, Any]:
    """Where a trial ran and what it was given there: known even of a trial that left no word."""
    return {
        "node": environment.node(),
        "cpus": _cpus(spec),
        "host_memory_bytes": spec.needs.host_bytes,
    }


def _measured(
    spec: TrialSpec, trackers: Sequence[Tracker], held: Held, enter: Announce, folder: Path
) -> tuple[dict[str, Any], Anatomy | None]:
    """Train under the trackers; returns what they, the loop and the inspection say, and the anatomy if asked for."""
    from jobs.trial import effective_config

    begin = time.perf_counter()
    device = _ready(spec, trackers, held, enter)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=folder) as scratch:
        setup = _assembled(spec, trackers, enter, device, scratch)
        setup_seconds = time.perf_counter() - begin
        train = hook(spec, "loop")
        assert train is not None
        trained = train(setup)
        tell(trackers, Moment.TRAIN_END, device)
        values = {**_collected(trackers)[0], "setup_seconds": setup_seconds}
        if spec.measure.inspect:
            enter("inspection")
            values = effective_config.inspect(trained) | values
        values |= _derived(values, spec) | _as_in_the_guide(trained, values)
        if not spec.measure.anatomy:
            return values, None
        enter("anatomy")
        return _taken_apart(trained, values)


def _taken_apart(trained: Trained, values: dict[str, Any]) -> tuple[dict[str, Any], Anatomy | None]:
    """The trial's anatomy. Everything is measured by now: what goes wrong here costs the anatomy, not the trial."""
    from jobs.anatomy.profile import dissect

    begin, found, missing = time.perf_counter(), None, {}
    try:
        found = dissect(trained, values)
    except Exception as error:
        traceback.print_exc()
        missing = {"anatomy_missing": errors.classify(error)[2]}
    return {**values, **missing, "anatomy_seconds": time.perf_counter() - begin}, found


def _as_in_the_guide(trained: Trained, values: Mapping[str, Any]) -> dict[str, float]:
    """The guide's "Time" and "Samples/second", less what looking at a step's operators cost."""
    seconds = trained.train_seconds - values.get("inspection_seconds", 0.0)
    samples = trained.samples_per_second * trained.train_seconds
    return {"docs_time_seconds": seconds, "docs_samples_per_second": samples / seconds}


def _derived(values: Mapping[str, Any], spec: TrialSpec) -> dict[str, Any]:
    """What follows from several trackers together."""
    from jobs import steady_state

    warnings = steady_state.doubts(
        half_width=values["samples_per_second_error"],
        relative_error=spec.measure.relative_error,
        host_bound_share=values.get("host_bound_share"),
        starved_share=steady_state.starved_share(values),
        allocator_retries=values.get("allocator_retries", 0),
    )
    derived: dict[str, Any] = {"warnings": warnings}
    if "energy_joules" in values:
        samples = values["samples_per_second"] * values["counted_seconds"]
        derived["joules_per_sample"] = values["energy_joules"] / samples
    if "persistent_bytes" in values and "step_growth_bytes" in values:
        derived["peak_allocated_bytes"] = values["persistent_bytes"] + values["step_growth_bytes"]
    return derived


def _ready(
    spec: TrialSpec, trackers: Sequence[Tracker], held: Held, enter: Announce
) -> torch.device:
    """The trial's device, its context created. Raises UnsupportedError where the node lacks something."""
    import torch

    enter("requirements")
    for tracker in trackers:
        tracker.start(held)
    requirements.check(spec.recipe.requires, spec)
    torch.set_num_threads(_cpus(spec))
    enter("context")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.ones((1, 1), device=device)
    tell(trackers, Moment.CONTEXT, device)
    if cap := memory_cap.of(spec):
        memory_cap.impose(cap, _collected(trackers)[0].get("gpu_context_bytes"))
    return device


def _assembled(
    spec: TrialSpec,
    trackers: Sequence[Tracker],
    enter: Announce,
    device: torch.device,
    scratch: str,
) -> Setup:
    """Data, arguments, model, optimizer and meter, ready for a loop."""
    import transformers

    from jobs.loops.arguments import training_arguments
    from jobs.loops.base import Setup
    from jobs.trial import models

    enter("data")
    wanted = (
        None if spec.measure.steps is None else _warmup_steps(spec, device) + spec.measure.steps
    )
    dataset, collator = _data(spec, samples=wanted * spec.effective_batch if wanted else None)

    enter("model")
    for place in ("compiler", "kernels"):
        if settle := hook(spec, place):
            settle()
    # DeepSpeed's process group and ZeRO-3's way of building come with the arguments: they are made before the model.
    arguments = training_arguments(
        spec, output_dir=scratch, total_steps=wanted, deepspeed=_deepspeed(spec, scratch)
    )
    transformers.set_seed(spec.measure.seed)
    model = models.build(spec.model, spec.recipe.model_kwargs, device)
    if adapt := hook(spec, "model"):
        model = adapt(model, spec.model.task, arguments)
    tell(trackers, Moment.MODEL, device)

    enter("trainer")
    make_optimizer = hook(spec, "optimizer")
    total = wanted or math.ceil(math.ceil(len(dataset) / spec.micro_batch) / spec.accumulation)
    return Setup(
        model=model,
        dataset=dataset,
        collator=collator,
        arguments=arguments,
        optimizer=make_optimizer(model, arguments) if make_optimizer else None,
        meter=_meter(spec, trackers, enter, total, device),
    )


def _data(spec: TrialSpec, *, samples: int | None) -> tuple[Any, Collator | None]:
    """The dataset, of so many samples or whole, and what makes batches of it (None: the Trainer's own)."""
    import transformers

    from jobs.trial import data, models

    config = models.architecture_config(spec.model)
    dataset, collator = data.load(
        spec.data, spec.model.task, config, samples=samples, seed=spec.measure.seed
    )
    if change := hook(spec, "collator"):
        collator = change(collator or transformers.default_data_collator)
    return dataset, collator


def _meter(
    spec: TrialSpec,
    trackers: Sequence[Tracker],
    enter: Announce,
    total_steps: int,
    device: torch.device,
) -> Meter:
    """A meter that stops when the speed is known, or after all steps."""
    from jobs.loops.meter import Meter

    return Meter(
        trackers,
        enter,
        warmup_steps=_warmup_steps(spec, device),
        total_steps=total_steps,
        relative_error=spec.measure.relative_error,
        device=device,
    )


def _warmup_steps(spec: TrialSpec, device: torch.device) -> int:
    """As asked; without a GPU memory is tracked in the last of them, and optimizer states exist from the second on."""
    asked = spec.measure.warmup_steps
    return max(asked, 2) if device.type == "cpu" and spec.measure.inspect else asked


def _deepspeed(spec: TrialSpec, scratch: str) -> dict[str, Any] | None:
    if spec.recipe.deepspeed is None:
        return None
    from jobs.loops import deepspeed

    nvme = spec.needs.nvme_path or scratch
    return deepspeed.prepare(spec.recipe.deepspeed, nvme_path=nvme, cpus=_cpus(spec))


def hook(spec: TrialSpec, place: str) -> Callable[..., Any] | None:
    """The function that a technique put in this place, its keyword arguments filled in."""
    if place not in spec.recipe.hooks:
        return None
    path, kwargs = spec.recipe.hooks[place]
    module, _, name = path.partition(":")
    return functools.partial(getattr(importlib.import_module(module), name), **kwargs)


def _cpus(spec: TrialSpec) -> int:
    return spec.needs.cpus or environment.cores()


def _collected(trackers: Sequence[Tracker]) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """What every tracker has; a tracker that cannot read its instrument after a device error says nothing."""
    measurements: dict[str, Any] = {}
    series: dict[str, list[float]] = {}
    for tracker in trackers:
        try:
            measurements |= tracker.measurements()
            series |= tracker.series()
        except RuntimeError as error:  # after a CUDA error every further call raises it again
            print(f"{type(tracker).__name__} could not be read: {error}", flush=True)
    return measurements, series
