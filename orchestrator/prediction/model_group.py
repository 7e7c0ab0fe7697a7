"""The trials of one model: traced at a few micro-batches, replayed and predicted one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.spec import TrialSpec
from orchestrator.prediction.affine_stream import NEEDS_AMPERE, Stream, between
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.intervals import Replayed, predicted
from orchestrator.prediction.libraries import quick_imports
from orchestrator.prediction.prediction import Prediction
from orchestrator.prediction.replay import TrialStreams, replay
from orchestrator.prediction.unsupported import unpredictable

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.batches import BatchShapes
    from orchestrator.prediction.tracing.fake_step import FakeStep, Updates


@dataclass(frozen=True, kw_only=True, slots=True)
class _MicroBatches:
    """The traces of one batch."""

    first: Stream
    """The first micro-batch of a step. No gradients are in memory when it begins."""
    later: Stream | None
    """Any later micro-batch of a step, which adds to the gradients. None without accumulation."""


class ModelGroup:
    """Trials of one model. If they have three or more micro-batches, only two sizes are traced.

    The sizes between are interpolated. ``update_key`` is equal for trials with the same optimizer
    step.
    """

    def __init__(
        self, trials: list[TrialSpec], gpu: Gpu, *, update_key: Callable[[TrialSpec], str]
    ) -> None:
        self._trials = trials
        self._gpu = gpu
        self._update_key = update_key
        self._accumulates = any(trial.accumulation > 1 for trial in trials)
        self._traces: dict[tuple[tuple[int, ...], ...], _MicroBatches] = {}
        """Shapes of a batch -> its streams."""
        self._updates: dict[str, Updates] = {}
        self._predicted: dict[tuple[str, int, int], Prediction] = {}
        """Optimizer step, micro-batch and accumulation -> the prediction of all such trials."""
        self._evaluation: Stream | None = None

    def predictions(self) -> Iterator[Prediction]:
        """One for each trial, in order."""
        reason = unpredictable(self._trials[0])
        if reason:
            for spec in self._trials:
                yield _unknown(spec, unpredictable(spec) or reason)
            return
        with quick_imports():
            from orchestrator.prediction.tracing.fake_step import FakeStep

        try:
            step = FakeStep(self._trials[0], self._gpu)
        except Exception as error:  # a model or a file of the user's may raise anything
            for spec in self._trials:
                yield _unknown(spec, _first_line(error))
            return
        for spec in self._trials:
            try:
                yield self._shared_prediction(spec, step)
            except Exception as error:
                yield _unknown(spec, _first_line(error))

    def _shared_prediction(self, spec: TrialSpec, step: FakeStep) -> Prediction:
        """The prediction of the first trial with the same batch and the same optimizer step.

        Trials of a group differ in nothing else that takes memory.
        """
        key = (self._update_key(spec), spec.micro_batch, spec.accumulation)
        if key not in self._predicted:
            self._predicted[key] = self._prediction(spec, step)
        return replace(self._predicted[key], trial_id=spec.trial_id, choices=spec.choices)

    def _prediction(self, spec: TrialSpec, step: FakeStep) -> Prediction:
        """The figures of the worst batch, and beside them those of a typical one."""
        from orchestrator.prediction.tracing.positions import why_beyond

        # What cannot run has no memory to predict.
        batch = step.batches.worst(spec.micro_batch)
        refused = why_beyond(step.model, batch)
        if refused:
            return Prediction(trial_id=spec.trial_id, choices=spec.choices, refused=refused)
        worst = self._predicted_on(batch, spec, step)
        if not step.batches.is_ragged or worst.device is None:
            return worst
        # Rows of a data file: the worst batch decides, the typical one is shown beside it.
        typical_batch = step.batches.typical(spec.micro_batch)
        typical = self._predicted_on(typical_batch, spec, step)
        return replace(
            worst,
            typical_device=typical.device,
            worst_tokens=batch.tokens(),
            typical_tokens=typical_batch.tokens(),
        )

    def _predicted_on(self, batch: BatchShapes, spec: TrialSpec, step: FakeStep) -> Prediction:
        """The trial's figures if all its micro-batches have these shapes."""
        micro_batches = self._micro_batches(batch, spec.micro_batch, step)
        if spec.settings.deepspeed is not None:
            return self._predicted_under_deepspeed(batch, spec, step, micro_batches)
        # The trial as streams: its model, its micro-batches, its updates.
        updates = self._updates_of(spec, step)
        streams = TrialStreams(
            model=step.weights,
            first=micro_batches.first,
            later=micro_batches.later,
            accumulation=spec.accumulation,
            first_update=updates.first,
            update=updates.later,
            evaluation=self._evaluation_of(spec, step),
        )
        replayed = Replayed(
            peaks=replay(streams, self._gpu),
            outside=_outside_allocator(micro_batches.first, self._gpu),
            paged=updates.paged,
            mask_bytes=_mask_bytes(batch, step),
            needs_ampere=NEEDS_AMPERE in micro_batches.first.kernels,
        )
        return predicted(spec, replayed, self._gpu)

    def _predicted_under_deepspeed(
        self, batch: BatchShapes, spec: TrialSpec, step: FakeStep, micro_batches: _MicroBatches
    ) -> Prediction:
        from orchestrator.prediction import zero

        # The engine holds weights, gradients and states in buffers of its own.
        engine = zero.ZeroEngine.of(spec, step.hidden_size)
        reason = engine.unpredictable(step.model)
        if reason:
            return _unknown(spec, reason)
        streams = zero.trial_streams(
            step.model, engine, micro_batches.first, micro_batches.later, spec.accumulation
        )
        streams = replace(streams, evaluation=self._evaluation_of(spec, step))
        # The engine's communicator and its own context lie outside the allocator.
        outside = _outside_allocator(micro_batches.first, self._gpu)
        is_stage_3 = engine.stage == 3
        outside += self._gpu.deepspeed_zero3_bytes if is_stage_3 else self._gpu.deepspeed_bytes
        replayed = Replayed(
            peaks=replay(streams, self._gpu),
            outside=outside,
            mask_bytes=_mask_bytes(batch, step),
            needs_ampere=NEEDS_AMPERE in micro_batches.first.kernels,
            under_deepspeed=True,
        )
        return predicted(spec, replayed, self._gpu)

    def _evaluation_of(self, spec: TrialSpec, step: FakeStep) -> Stream | None:
        if spec.measure.evaluate_and_save and self._evaluation is None:
            self._evaluation = step.evaluation(step.evaluation_rows)
        return self._evaluation

    def _updates_of(self, spec: TrialSpec, step: FakeStep) -> Updates:
        key = self._update_key(spec)
        if key not in self._updates:
            self._updates[key] = step.updates(spec)
        return self._updates[key]

    def _micro_batches(self, batch: BatchShapes, samples: int, step: FakeStep) -> _MicroBatches:
        """A micro-batch, interpolated between the smallest and the largest if it can be."""
        sizes = sorted({trial.micro_batch for trial in self._trials})
        affine = [size for size in sizes if size > 1]  # a single sample has another memory layout
        # For batches of unequal length, memory is not an affine function of the size.
        if not step.batches.is_ragged and len(affine) > 2 and samples in affine[1:-1]:
            smallest = self._traced(step.batches.worst(affine[0]), affine[0], step)
            largest = self._traced(step.batches.worst(affine[-1]), affine[-1], step)
            interpolated = _interpolated(smallest, largest, samples)
            if interpolated is not None:
                return interpolated
        return self._traced(batch, samples, step)

    def _traced(self, batch: BatchShapes, samples: int, step: FakeStep) -> _MicroBatches:
        key = tuple(tensor.shape for tensor in batch.tensors.values())
        if key not in self._traces:
            first, later = step.micro_batches(batch, samples=samples, accumulated=self._accumulates)
            self._traces[key] = _MicroBatches(first=first, later=later)
        return self._traces[key]


def _interpolated(low: _MicroBatches, high: _MicroBatches, samples: int) -> _MicroBatches | None:
    """The streams between two traces; None if the traces do not have the same events."""
    first = between(low.first, high.first, samples)
    if first is None:
        return None
    if low.later is None or high.later is None:
        return _MicroBatches(first=first, later=None)
    later = between(low.later, high.later, samples)
    if later is None:
        return None
    return _MicroBatches(first=first, later=later)


def _outside_allocator(stream: Stream, gpu: Gpu) -> int:
    """Bytes of the device that a training takes outside the caching allocator."""
    outside = gpu.context_bytes + gpu.kernels_bytes
    if "cudnn" in stream.kernels:
        outside += gpu.cudnn_bytes
    return outside


def _mask_bytes(batch: BatchShapes, step: FakeStep) -> int:
    """A 32-bit attention bias for each head and pair of positions; 0 without padding."""
    if not batch.is_padded:
        return 0
    tokens = batch.tokens()
    samples = batch.tensors["attention_mask"].shape[0]
    return 4 * samples * step.attention_heads * tokens * tokens


def _unknown(spec: TrialSpec, reason: str) -> Prediction:
    return Prediction(trial_id=spec.trial_id, choices=spec.choices, unknown=reason)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
