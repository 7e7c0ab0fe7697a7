"""Trials to predictions. Trials that differ only in batch or optimizer share their traces."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from jobs.spec import TrialSpec, to_json
from orchestrator.prediction.affine_stream import Stream, between
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.libraries import quick_imports
from orchestrator.prediction.prediction import Figure, Prediction, figure
from orchestrator.prediction.replay import ReplayedPeaks, TrialStreams, replay
from orchestrator.prediction.unsupported import unpredictable
from orchestrator.units import MIB

if TYPE_CHECKING:
    from orchestrator.prediction.fake_step import FakeStep, Updates

_BATCH_ARGUMENTS = ("per_device_train_batch_size", "gradient_accumulation_steps")
_UPDATE_ARGUMENTS = ("optim", "optim_args", "max_grad_norm", "learning_rate", "weight_decay")
_UNTRACED_ARGUMENTS = (*_BATCH_ARGUMENTS, *_UPDATE_ARGUMENTS, "tf32")
"""Training arguments that change nothing in how a micro-batch runs through the model."""
_UNTRACED_PREFIXES = ("dataloader_", "logging_")
_PAGE_BYTES = 2 * MIB
_FRAGILE = 0.02
"""Share by which the order of segments may change the reserved memory before neither is likely."""
MicroBatches = tuple[Stream, Stream | None]
"""A micro-batch that meets no gradients, and with accumulation one that meets them."""


def predict(trials: Sequence[TrialSpec], gpu: Gpu) -> list[Prediction]:
    """Predictions in the order of the trials. What libraries print is kept off stdout."""
    predictions: dict[str, Prediction] = {}
    with _quiet_libraries():
        for group in sharing_traces(trials):
            for prediction in _ModelGroup(group, gpu).predictions():
                predictions[prediction.trial_id] = prediction
    return [predictions[trial.trial_id] for trial in trials]


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def sharing_traces(trials: Iterable[TrialSpec]) -> list[list[TrialSpec]]:
    """Trials in groups that are best predicted together: those of one model."""
    groups: dict[str, list[TrialSpec]] = {}
    for spec in trials:
        groups.setdefault(_model_key(spec), []).append(spec)
    return list(groups.values())


def _model_key(spec: TrialSpec) -> str:
    """Equal for trials that share a model, and the way a micro-batch runs through it."""
    settings = to_json(spec.settings)
    hooks = {place: hook for place, hook in settings["hooks"].items() if place != "optimizer"}
    parts = [
        to_json(spec.model),
        to_json(spec.data),
        _traced_arguments(settings["training_arguments"]),
        settings["model_kwargs"],
        hooks,
        settings["deepspeed"],
        bool(unpredictable(spec)),
    ]
    return json.dumps(parts, sort_keys=True)


def _traced_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in arguments.items()
        if name not in _UNTRACED_ARGUMENTS and not name.startswith(_UNTRACED_PREFIXES)
    }


def _update_key(spec: TrialSpec) -> str:
    """Equal for trials whose optimizer makes the same step."""
    given = spec.settings.training_arguments
    arguments = {name: given[name] for name in _UPDATE_ARGUMENTS if name in given}
    hook = to_json(spec.settings.hooks.get("optimizer"))
    return json.dumps([arguments, hook], sort_keys=True)


class _ModelGroup:
    """Trials of one model. A micro-batch is traced at two sizes where three or more are asked."""

    def __init__(self, trials: list[TrialSpec], gpu: Gpu) -> None:
        self._trials = trials
        self._gpu = gpu
        self._accumulates = any(trial.accumulation > 1 for trial in trials)
        self._traces: dict[int, MicroBatches] = {}
        """Micro-batch -> its streams."""
        self._updates: dict[str, Updates] = {}

    def predictions(self) -> Iterator[Prediction]:
        """One for each trial, in order."""
        reason = unpredictable(self._trials[0])
        if reason:
            for spec in self._trials:
                yield _unknown(spec, unpredictable(spec) or reason)
            return
        with quick_imports():
            from orchestrator.prediction.fake_step import FakeStep

        try:
            step = FakeStep(self._trials[0], self._gpu)
        except Exception as error:  # a model of the user's may raise anything
            for spec in self._trials:
                yield _unknown(spec, _first_line(error))
            return
        for spec in self._trials:
            try:
                yield self._prediction(spec, step)
            except Exception as error:
                yield _unknown(spec, _first_line(error))

    def _prediction(self, spec: TrialSpec, step: FakeStep) -> Prediction:
        first, later = self._micro_batches(spec.micro_batch, step)
        if spec.settings.deepspeed is not None:
            return self._prediction_under_deepspeed(spec, step, first, later)
        updates = self._updates_of(spec, step)
        streams = TrialStreams(
            model=step.weights,
            first=first,
            later=later,
            accumulation=spec.accumulation,
            first_update=updates.first,
            update=updates.later,
        )
        peaks = replay(streams, self._gpu)
        outside = _outside_allocator(first, self._gpu)
        return _predicted(spec, peaks, reserved_interval(peaks), outside, updates.paged)

    def _prediction_under_deepspeed(
        self, spec: TrialSpec, step: FakeStep, first: Stream, later: Stream | None
    ) -> Prediction:
        from orchestrator.prediction import zero

        engine = zero.ZeroEngine.of(spec, step.hidden_size)
        reason = engine.unpredictable(step.model)
        if reason:
            return _unknown(spec, reason)
        streams = zero.trial_streams(step.model, engine, first, later, spec.accumulation)
        peaks = replay(streams, self._gpu)
        # The engine sets its partitions up with copies whose memory stays reserved. Margins from
        # the runs in docs/results.
        reserved = figure(peaks.reserved, below=0.05, above=0.1, slack=20 * MIB)
        outside = _outside_allocator(first, self._gpu)
        if engine.stage == 3:
            outside += self._gpu.deepspeed_zero3_bytes
        else:
            outside += self._gpu.deepspeed_bytes
        return _predicted(spec, peaks, reserved, outside, ())

    def _updates_of(self, spec: TrialSpec, step: FakeStep) -> Updates:
        key = _update_key(spec)
        if key not in self._updates:
            self._updates[key] = step.updates(spec)
        return self._updates[key]

    def _micro_batches(self, samples: int, step: FakeStep) -> MicroBatches:
        """A micro-batch, interpolated between the smallest and the largest where it can be."""
        sizes = sorted({trial.micro_batch for trial in self._trials})
        affine = [size for size in sizes if size > 1]  # a single sample has another memory layout
        if len(affine) > 2 and samples in affine[1:-1]:
            smallest = self._traced(affine[0], step)
            largest = self._traced(affine[-1], step)
            interpolated = _interpolated(smallest, largest, samples)
            if interpolated is not None:
                return interpolated
        return self._traced(samples, step)

    def _traced(self, samples: int, step: FakeStep) -> MicroBatches:
        if samples not in self._traces:
            self._traces[samples] = step.micro_batches(samples, accumulated=self._accumulates)
        return self._traces[samples]


def _interpolated(low: MicroBatches, high: MicroBatches, samples: int) -> MicroBatches | None:
    """The streams between two traces; None where the traces do not have the same events."""
    first = between(low[0], high[0], samples)
    if first is None:
        return None
    if low[1] is None or high[1] is None:
        return first, None
    later = between(low[1], high[1], samples)
    if later is None:
        return None
    return first, later


def _outside_allocator(stream: Stream, gpu: Gpu) -> int:
    """Bytes of the device that a training takes outside the caching allocator."""
    outside = gpu.context_bytes + gpu.kernels_bytes
    if "cudnn" in stream.kernels:
        outside += gpu.cudnn_bytes
    return outside


def _predicted(
    spec: TrialSpec,
    peaks: ReplayedPeaks,
    reserved: Figure,
    outside: int,
    paged: Sequence[int],
) -> Prediction:
    # Managed memory comes in pages. How densely small states share them is up to the driver.
    least_paged = sum(paged)
    # At worst every state begins a page of its own.
    pages = [-(-nbytes // _PAGE_BYTES) for nbytes in paged]
    most_paged = sum(pages) * _PAGE_BYTES
    return Prediction(
        trial_id=spec.trial_id,
        choices=spec.choices,
        allocated=figure(peaks.allocated, below=0.01, above=0.01),
        reserved=reserved,
        device=Figure(
            bytes=reserved.bytes + outside + (least_paged + most_paged) // 2,
            low=reserved.low + outside,
            high=reserved.high + outside + most_paged,
        ),
        anatomy=peaks.at_peak,
    )


def reserved_interval(peaks: ReplayedPeaks) -> Figure:
    """Reserved memory, with the margins that two rounds of measurements needed around it."""
    low, high = sorted((peaks.reserved, peaks.reserved_upwards))
    # Where the two orders of segments differ much, neither is more likely.
    likely = peaks.reserved if high - low <= _FRAGILE * high else (low + high) // 2
    return Figure(bytes=likely, low=int(low * 0.94), high=int(high * 1.07) + 20 * MIB)


def _unknown(spec: TrialSpec, reason: str) -> Prediction:
    return Prediction(trial_id=spec.trial_id, choices=spec.choices, unknown=reason)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
