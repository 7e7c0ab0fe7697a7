"""The trials of one model: traced at a few micro-batches, replayed and predicted one by one."""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.spec import TrialSpec
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.intervals import Replayed, predicted
from orchestrator.prediction.margins import widened
from orchestrator.prediction.prediction import Prediction, unknown
from orchestrator.prediction.shared import Shared
from orchestrator.prediction.streams.affine_stream import (
    NEEDS_AMPERE,
    Interpolation,
    MicroBatches,
    Stream,
    compiled,
)
from orchestrator.prediction.streams.length_streams import at_lengths
from orchestrator.prediction.streams.replay import ReplayedPeaks, TrialStreams, replay
from orchestrator.prediction.streams.sized_stream import SizedStreams
from orchestrator.prediction.time.operations import StepWork, Work
from orchestrator.prediction.time.shared_work import parts_of_ranks, shared_step, zero_update
from orchestrator.prediction.time.step_work import (
    PartWork,
    formats,
    repeated_share,
    step_of,
    update_key,
)
from orchestrator.prediction.unsupported import (
    empties_cache,
    has_timed_step,
    is_fsdp,
    multiplies_integers,
)

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.deep_step import DeepStep
    from orchestrator.prediction.tracing.fakes.fake_update import Updates
    from orchestrator.prediction.tracing.rows.batches import BatchShapes


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """What is replayed of a trial, and what is added to it."""

    streams: TrialStreams
    outside: int = 0
    """Bytes of DeepSpeed's engine outside the allocator."""
    paged: tuple[int, ...] = ()
    """Bytes of each state in managed memory."""
    notes: tuple[str, ...] = ()


Replays = tuple[list[ReplayedPeaks], ReplayedPeaks | None]
"""Those of an epoch in its own order of rows and in others, and that of a trial."""


class ModelGroup:
    """Trials of one model. Micro-batches between the smallest and the largest are interpolated."""

    def __init__(
        self,
        trials: Sequence[TrialSpec],
        step: DeepStep,
        gpu: Gpu,
        shared: Shared,
        *,
        has_trial: bool = True,
    ) -> None:
        """``has_trial``: whether it is also asked what a trial measures of an epoch."""
        self.step, self.shared = step, shared
        self._gpu, self._has_trial = gpu, has_trial
        self._sized = SizedStreams(gpu)
        self._accumulates = any(trial.accumulation > 1 for trial in trials)
        sizes = sorted({trial.micro_batch for trial in trials})
        self.affine = [size for size in sizes if size > 1] or sizes
        """Micro-batches whose memory is affine in the size: a single sample has another layout."""
        self._traces: dict[tuple[bool, tuple[tuple[int, ...], ...]], MicroBatches] = {}
        """Whether a batch is padded, and its shapes -> its streams."""
        worst = self.step.batches.worst
        self._between = Interpolation(self.affine, lambda size: self._traced(worst(size), size))
        self._steps: dict[tuple[object, ...], StepWork] = {}
        self._predicted: dict[tuple[str, int, int, float], Prediction] = {}
        """Optimizer step, micro-batch, accumulation and kept share -> that of such trials."""
        self._evaluation: Stream | None = None

    def prediction(self, spec: TrialSpec) -> Prediction:
        """The trial's memory and, where it is known and more than likely figures are wanted, what a
        step runs."""
        found = self.memory(spec)
        if found.device is None or self.shared.is_likely or not has_timed_step(spec):
            return found
        with suppress(ValueError):  # what a step runs may not be known
            return replace(found, step=self.step_work(spec))
        return found

    def memory(self, spec: TrialSpec, *, kept: float = 0.0) -> Prediction:
        """That of the first trial with the same batch and optimizer step. ``kept``: the share of
        saved activations that a compiler keeps; 0: nothing is compiled."""
        key = (update_key(spec), spec.micro_batch, spec.accumulation, kept)
        if key not in self._predicted:
            try:
                self._predicted[key] = self._prediction(spec, kept)
            except Exception as error:
                self._predicted[key] = unknown(spec, error)
        return replace(self._predicted[key], trial_id=spec.trial_id, choices=spec.choices)

    def _prediction(self, spec: TrialSpec, kept: float) -> Prediction:
        """The figures of an epoch, and for rows of unequal length also what a trial measures."""
        from orchestrator.prediction.tracing.rows.batches import why_beyond

        batches = self.step.batches
        batch = batches.worst(spec.micro_batch)
        if refused := why_beyond(self.step.model, batch):
            return Prediction(trial_id=spec.trial_id, choices=spec.choices, refused=refused)
        prediction = self._predicted_on(batch, spec, kept)
        if batches.lengths is not None:
            steps = len(batches.lengths.tokens) // spec.effective_batch
            return replace(prediction, epoch_steps=steps, longest_tokens=batch.tokens())
        return prediction

    def _predicted_on(self, batch: BatchShapes, spec: TrialSpec, kept: float) -> Prediction:
        """The trial's figures, whose equal micro-batches have the shapes of ``batch``."""
        micro_batches = compiled(self._micro_batches(batch, spec.micro_batch), kept)
        has_engine = spec.settings.deepspeed is not None
        parts = (self._engine_parts if has_engine else self._trainer_parts)(spec, micro_batches)
        streams = replace(parts.streams, evaluation=self._evaluation_of(spec))
        (own, *others), trial = self._replays(spec, streams, kept)
        kernels = micro_batches[0].kernels
        replayed = Replayed(
            peaks=own,
            trial=trial,
            orders=tuple(others),
            outside=parts.outside + self._outside_bytes(spec, kernels),
            paged=parts.paged,
            needs_ampere=NEEDS_AMPERE in kernels,
            under_deepspeed=has_engine,
            is_shared=spec.world_size > 1,
            is_encoder_decoder=bool(self.step.model.config.is_encoder_decoder),
        )
        prediction = widened(predicted(spec, replayed, self._gpu), spec, kernels)
        return replace(prediction, notes=(*prediction.notes, *parts.notes))

    def _outside_bytes(self, spec: TrialSpec, kernels: Container[str]) -> int:
        """What a training takes beside the allocator's memory, without DeepSpeed's engine."""
        outside = self._gpu.outside_bytes
        if "cudnn" in kernels:
            outside += self._gpu.cudnn_bytes
        if multiplies_integers(spec):
            outside += self._gpu.integers_bytes
        if spec.world_size > 1:
            outside += self._gpu.communicator_bytes
        return outside

    def _trainer_parts(self, spec: TrialSpec, micro_batches: MicroBatches) -> _Parts:
        (first, later), updates = micro_batches, self._updates_of(spec)
        if is_fsdp(spec) and later is not None and spec.accumulation > 1:
            first, later = later, None
        streams = TrialStreams(
            model=self.step.weights,
            first=first,
            later=later,
            accumulation=spec.accumulation,
            first_update=updates.first,
            update=updates.later,
            empties_cache=empties_cache(spec),
        )
        return _Parts(streams=streams, paged=updates.paged, notes=updates.notes)

    def _engine_parts(self, spec: TrialSpec, micro_batches: MicroBatches) -> _Parts:
        """DeepSpeed's engine holds weights, gradients and states in buffers of its own."""
        from orchestrator.prediction import zero

        engine, updates = zero.ZeroEngine.of(spec, self.step.model), self._updates_of(spec)
        notes = (*engine.host_note(spec, self.step.model), *updates.notes)
        if self.step.batches.lengths is not None:
            notes = (*notes, zero.LONGEST_STANDS_FOR_ALL)
        parts = (self.step.model, engine, micro_batches, updates)
        streams = zero.trial_streams(*parts, spec.accumulation)
        outside = engine.outside_bytes(self._gpu)
        return _Parts(streams=streams, outside=outside, paged=updates.paged, notes=notes)

    def first(self, spec: TrialSpec) -> Stream:
        """The first micro-batch, of the longest rows."""
        return self._micro_batches(self.step.batches.worst(spec.micro_batch), spec.micro_batch)[0]

    def step_work(self, spec: TrialSpec) -> StepWork:
        """The kernels of a step; if its rows are of unequal length, of a usual one of an epoch."""
        key = (update_key(spec), spec.micro_batch, spec.accumulation, repeated_share(spec))
        if key not in self._steps:
            (first, later), tokens, new_shapes = self._parts(spec)
            if spec.world_size > 1:
                first, later = parts_of_ranks(spec, first, later)
            step = step_of(spec, first, later, self._update_work(spec), tokens)
            samples = step.samples * self.step.batches.samples_per_row
            step = replace(step, samples=samples, new_shapes=new_shapes)
            self._steps[key] = step if spec.world_size == 1 else shared_step(spec, step)
        return replace(self._steps[key], formats=formats(spec))

    def _parts(self, spec: TrialSpec) -> tuple[tuple[PartWork, PartWork | None], float, float]:
        """A step's first micro-batch and any later one, the positions of a row, and how many shapes
        of a step are new."""
        batches = self.step.batches
        if batches.is_longest:
            raise ValueError("no usual step stands for rows that cannot be cut to a length")
        if batches.ragged is None:
            batch = batches.worst(spec.micro_batch)
            first, later = self._micro_batches(batch, spec.micro_batch)
            rows = spec.micro_batch if batches.joins_rows else 1
            return (first.work, later.work if later else None), batch.tokens() / rows, 0.0
        from orchestrator.prediction.tracing.rows.usual_step import usual_micro_batches

        (first, later), usual = usual_micro_batches(spec, batches, self.affine, self._traced)
        later_work = later.work.seeing(usual.seen) if later else None
        positions = batches.longest(1).tokens() * usual.rows / spec.micro_batch
        return (first.work.seeing(usual.seen), later_work), positions, usual.new_shapes

    def _update_work(self, spec: TrialSpec) -> Work:
        update = self._updates_of(spec).later.work.eager
        if spec.settings.deepspeed is None:
            return update
        from orchestrator.prediction.zero import ZeroEngine

        model = self.step.model
        return zero_update(spec, ZeroEngine.of(spec, model), list(model.parameters()), update)

    def _replays(self, spec: TrialSpec, streams: TrialStreams, kept: float) -> Replays:
        """The peaks of a few equal steps, or of an epoch's and a trial's rows of unequal length."""
        # DeepSpeed's buckets are modelled for one batch, so the longest rows stand for all.
        if self.step.batches.lengths is not None and spec.settings.deepspeed is None:
            return self._ragged(spec, streams, kept)
        key = streams.digest(self._sized)
        if key not in self.shared.replays:
            self.shared.replays[key] = replay(streams, self._sized)
        return [self.shared.replays[key]], None

    def _ragged(self, spec: TrialSpec, streams: TrialStreams, kept: float) -> Replays:
        from orchestrator.prediction.tracing.rows import epoch_orders

        batches = self.step.batches
        assert batches.lengths is not None
        rows = (spec, batches.lengths, batches.collate)
        # Both orders of segments of the epoch itself and of the trial, for the interval; the other
        # orders of rows differ anyway.
        in_both = not self.shared.is_likely
        is_known = epoch_orders.is_known(spec)
        epoch, *others = epoch_orders.orders(*rows, batches.joins_rows)
        asked = [(epoch, in_both), *((own, False) for own in others if in_both or not is_known)]
        if self._has_trial:
            asked.append((epoch_orders.trial(*rows), in_both))
        shapes = [own for steps, _ in asked for own in itertools.chain(*steps)]

        def traced(batch: BatchShapes, samples: int) -> MicroBatches:
            return compiled(self._traced(batch, samples), kept)

        sized = at_lengths(shapes, batches.of_shape, traced, self._gpu)
        replays = []
        for steps, upwards in asked:
            own = replace(streams, steps=[sized(step) for step in steps])
            replays.append(replay(own, self._sized, upwards=upwards))
        trial = replays.pop() if self._has_trial else None
        if not is_known:
            # "Fits" means that any of these orders does.
            replays.sort(key=lambda own: own.reserved, reverse=True)
        return replays, trial

    def _evaluation_of(self, spec: TrialSpec) -> Stream | None:
        if spec.measure.evaluate_and_save and self._evaluation is None:
            self._evaluation = self.step.evaluation()
        return self._evaluation

    def _updates_of(self, spec: TrialSpec) -> Updates:
        key = (update_key(spec), self.step.trained)
        if key not in self.shared.updates:
            self.shared.updates[key] = self.step.updates(spec)
        return self.shared.updates[key]

    def _micro_batches(self, batch: BatchShapes, samples: int) -> MicroBatches:
        """A micro-batch, interpolated between two others if it can be."""
        # For batches of unequal length, memory is not an affine function of the size.
        batches = self.step.batches
        is_affine = batches.lengths is None and not (batches.joins_rows or batches.is_longest)
        if is_affine and (interpolated := self._between.at(samples)):
            return interpolated
        return self._traced(batch, samples)

    def _traced(self, batch: BatchShapes, samples: int) -> MicroBatches:
        shapes = tuple(tuple(getattr(own, "shape", ())) for own in batch.tensors.values())
        key = (batch.is_padded, shapes)
        if key not in self._traces:
            made = self.step.micro_batches(batch, samples=samples, accumulated=self._accumulates)
            self._traces[key] = made
        return self._traces[key]
