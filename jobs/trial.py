"""One trial, in the process that is its own: build, train, read back; whatever happens has a name."""

from __future__ import annotations

import importlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jobs import environment, failures, requirements
from jobs.record import Column, Outcome, TrialRecord
from jobs.spec import TrialSpec
from jobs.trackers.base import Moment, Tracker

Announce = Callable[[str], None]

SCRATCH = "scratch-"
"""How the names of trials' scratch folders begin."""

COLUMNS = (
    Column(name="oom_requested_bytes", type="int64", unit="B", doc="the allocation that ran out of memory"),
    Column(name="setup_seconds", type="float64", unit="s", doc="from the child's start to its training loop"),
    Column(
        name="docs_time_seconds", type="float64", unit="s", doc="the guide's 'Time': train_runtime, warm-up included"
    ),
    Column(
        name="docs_samples_per_second",
        type="float64",
        unit="1/s",
        doc="the guide's 'Samples/second': all samples over the whole training time",
    ),
    Column(
        name="overhead_seconds", type="float64", unit="s", doc="what the slot spent on the trial beyond counted steps"
    ),
    Column(name="slot_parent_pid", type="int64", doc="process that made the trial's own process"),
    Column(name="isolation_fallback", type="string", doc="why the process could not be forked, where it was to be"),
    Column(name="warnings", type="list<string>", doc="what to know before trusting the row's speed, in words"),
    Column(name="node", type="string", doc="the machine that ran the trial"),
    Column(name="cpus", type="int64", doc="CPU cores given to the trial, also its OMP threads"),
)


def run(spec: TrialSpec, announce: Announce, *, isolation: str, scratch: Path) -> TrialRecord:
    """Run a trial in this process and return its record; every exception becomes an outcome.

    ``announce`` is told each phase as it begins, so that a parent can say where a dead child was. In ``scratch``,
    a folder of the trial's own comes and goes.
    """
    from jobs.trackers import TRACKERS

    phase = ""

    def enter(name: str) -> None:
        nonlocal phase
        phase = name
        announce(name)

    started = time.time()
    outcome, rule, reason = Outcome.OK, "", ""
    inspected: dict[str, Any] = {}
    with ExitStack() as stack:
        trackers = [stack.enter_context(tracker()) for tracker in TRACKERS]
        try:
            inspected = _measured(spec, trackers, enter, scratch)
        except Exception as error:
            outcome, rule, reason = failures.classify(error)
            if (asked := failures.bytes_asked(error)) is not None:
                inspected["oom_requested_bytes"] = asked
            if outcome is Outcome.FAILED:
                import traceback

                traceback.print_exc()
        measurements, steps = _collected(trackers)
    return TrialRecord(
        spec=spec,
        outcome=outcome,
        rule=rule,
        reason=reason,
        phase="" if outcome is Outcome.OK else phase,
        measurements={**measurements, **inspected, "node": environment.node(), "cpus": spec.needs.cpus},
        steps=steps,
        environment=environment.describe(),
        started_at=started,
        wall_seconds=time.time() - started,
        isolation=isolation,
    )


def _measured(spec: TrialSpec, trackers: Sequence[Tracker], enter: Announce, folder: Path) -> dict[str, Any]:
    """Train under the trackers; returns what the inspection and the loop itself say."""
    import torch
    import transformers

    from jobs import data, inspection, models, steady
    from jobs.loops.arguments import training_arguments
    from jobs.loops.base import Setup
    from jobs.loops.meter import Meter
    from jobs.trackers import Steps

    enter("requirements")
    begin = time.perf_counter()
    _tell(trackers, Moment.START)
    requirements.check(spec.recipe.requires, spec)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(spec.needs.cpus or os.cpu_count() or 1)

    enter("context")
    if device.type == "cuda":
        torch.ones((1, 1), device=device)
        torch.cuda.synchronize()
    _tell(trackers, Moment.CONTEXT)

    enter("data")
    config = models.architecture_config(spec.model)
    wanted = _total_steps(spec)
    samples = wanted * spec.effective_batch if wanted else None
    dataset, collator = data.load(spec.data, spec.model.task, config, samples=samples, seed=spec.measure.seed)

    enter("model")
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch:
        arguments = training_arguments(
            spec, output_dir=scratch, total_steps=wanted, deepspeed=_deepspeed(spec, scratch)
        )
        transformers.set_seed(spec.measure.seed)
        model = models.build(spec.model, spec.recipe.model_kwargs, device)
        if hook := spec.recipe.hooks.get("model"):
            model = _load(hook[0])(model, spec.model.task, arguments, **hook[1])
        _tell(trackers, Moment.MODEL, device)

        enter("trainer")
        optimizer = None
        if hook := spec.recipe.hooks.get("optimizer"):
            optimizer = _load(hook[0])(model, arguments, **hook[1])
        total = wanted or math.ceil(math.ceil(len(dataset) / spec.micro_batch) / spec.accumulation)
        clock = next(tracker for tracker in trackers if isinstance(tracker, Steps))
        meter = Meter(
            trackers,
            enter,
            warmup_steps=spec.measure.warmup_steps,
            total_steps=total,
            enough=lambda: steady.is_settled(clock.counted_so_far(), spec.measure.relative_error),
            device=device,
        )
        loop, loop_kwargs = spec.recipe.hooks["loop"]
        setup = Setup(
            model=model, dataset=dataset, collator=collator, arguments=arguments, optimizer=optimizer, meter=meter
        )
        setup_seconds = time.perf_counter() - begin
        trained = _load(loop)(setup, **loop_kwargs)
        _tell(trackers, Moment.TRAIN_END, device)
        # What the trackers say is fixed before the inspection can touch it.
        values = {
            **_collected(trackers)[0],
            "setup_seconds": setup_seconds,
            "docs_time_seconds": trained.train_seconds,
            "docs_samples_per_second": trained.samples_per_second,
        }
        values["warnings"] = steady.doubts(
            half_width=values["samples_per_second_error"],
            relative_error=spec.measure.relative_error,
            host_bound_share=values.get("host_bound_share"),
            allocator_retries=values.get("allocator_retries", 0),
            foreign_processes=values.get("gpu_foreign_processes", 0),
        )
        if spec.measure.inspect:
            enter("inspection")
            values |= inspection.inspect(trained, device)
    return values


def _total_steps(spec: TrialSpec) -> int | None:
    return None if spec.measure.steps is None else spec.measure.warmup_steps + spec.measure.steps


def _deepspeed(spec: TrialSpec, scratch: str) -> dict[str, Any] | None:
    if spec.recipe.deepspeed is None:
        return None
    from jobs.loops import deepspeed

    nvme = spec.needs.nvme_path or scratch
    return deepspeed.prepare(spec.recipe.deepspeed, nvme_path=nvme, cpus=spec.needs.cpus or os.cpu_count() or 1)


def _load(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _tell(trackers: Sequence[Tracker], moment: Moment, device: Any = None) -> None:
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.synchronize()
    now = time.perf_counter()
    for tracker in trackers:
        tracker.at(moment, now)


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
