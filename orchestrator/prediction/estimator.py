"""Trials to predictions: traces are shared between trials that differ only in batch or optimizer."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from jobs.spec import TrialSpec, to_json
from orchestrator.prediction.affine_stream import Stream, between
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.libraries import quick_imports
from orchestrator.prediction.prediction import Figure, Prediction, figure
from orchestrator.prediction.replay import Outcome, Trial, replay
from orchestrator.prediction.unsupported import unknown

if TYPE_CHECKING:
    from orchestrator.prediction.fake_step import Rehearsal, Updates

_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")
_UPDATE = ("optim", "optim_args", "max_grad_norm", "learning_rate", "weight_decay")
_MIB = 2**20
_PAGE = 2 * _MIB
_FRAGILE = 0.02  # by more than this share the order of segments makes a difference: neither is then the likelier


def predict(trials: Sequence[TrialSpec], gpu: Gpu) -> list[Prediction]:
    """Predictions in the order of the trials; what libraries have to say meanwhile is kept off stdout and stderr."""
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            groups = (_Group(group, gpu) for group in sharing_traces(trials))
            found = {
                prediction.trial_id: prediction
                for group in groups
                for prediction in group.predictions()
            }
    finally:
        logging.disable(logging.NOTSET)
    return [found[trial.trial_id] for trial in trials]


def sharing_traces(trials: Iterable[TrialSpec]) -> list[list[TrialSpec]]:
    """Trials in groups that are best predicted together: those of one model."""
    groups: dict[str, list[TrialSpec]] = {}
    for spec in trials:
        groups.setdefault(_model_key(spec), []).append(spec)
    return list(groups.values())


def _model_key(spec: TrialSpec) -> str:
    """Trials with equal keys share a model and how a micro-batch runs through it."""
    recipe = to_json(spec.recipe)
    arguments = {
        k: v
        for k, v in recipe["training_arguments"].items()
        if k not in (*_BATCH, *_UPDATE, "tf32")
    }
    arguments = {
        k: v for k, v in arguments.items() if not k.startswith(("dataloader_", "logging_"))
    }
    hooks = {place: hook for place, hook in recipe["hooks"].items() if place != "optimizer"}
    parts = [
        to_json(spec.model),
        to_json(spec.data),
        arguments,
        recipe["model_kwargs"],
        hooks,
        recipe["deepspeed"],
    ]
    return json.dumps([*parts, bool(unknown(spec))], sort_keys=True)


def _update_key(spec: TrialSpec) -> str:
    arguments = {k: v for k, v in spec.recipe.training_arguments.items() if k in _UPDATE}
    return json.dumps([arguments, to_json(spec.recipe.hooks.get("optimizer"))], sort_keys=True)


class _Group:
    """Trials of one model; a micro-batch is traced at two sizes where three or more are wanted."""

    def __init__(self, trials: list[TrialSpec], gpu: Gpu) -> None:
        self._trials, self._gpu = trials, gpu
        self._micro: dict[tuple[int, bool], tuple[Stream, Stream | None]] = {}
        self._updates: dict[str, Updates] = {}

    def predictions(self) -> Iterator[Prediction]:
        """One for each trial, in order."""
        if reason := unknown(self._trials[0]):
            yield from (_nothing(spec, unknown(spec) or reason) for spec in self._trials)
            return
        with quick_imports():
            from orchestrator.prediction.fake_step import Rehearsal

        try:
            rehearsal = Rehearsal(self._trials[0], self._gpu)
        except (
            Exception
        ) as error:  # whatever a model of the user's raises: nothing is known of these trials
            yield from (_nothing(spec, _said(error)) for spec in self._trials)
            return
        for spec in self._trials:
            try:
                yield self._prediction(spec, rehearsal)
            except Exception as error:
                yield _nothing(spec, _said(error))

    def _prediction(self, spec: TrialSpec, rehearsal: Rehearsal) -> Prediction:
        first, later = self._micro_batch(spec, rehearsal)
        if spec.recipe.deepspeed is not None:
            return self._under_deepspeed(spec, rehearsal, first, later)
        key = _update_key(spec)
        if key not in self._updates:
            self._updates[key] = rehearsal.updates(spec)
        updates = self._updates[key]
        trial = Trial(
            model=rehearsal.weights,
            first=first,
            later=later,
            accumulation=spec.accumulation,
            first_update=updates.first,
            update=updates.later,
        )
        return _seen(spec, replay(trial, self._gpu), first.kernels, updates.paged, self._gpu)

    def _under_deepspeed(
        self, spec: TrialSpec, rehearsal: Rehearsal, first: Stream, later: Stream | None
    ) -> Prediction:
        from orchestrator.prediction import zero

        engine = zero.Engine.of(spec, rehearsal.hidden_size)
        if reason := engine.unknown(rehearsal.model):
            return _nothing(spec, reason)
        trial = zero.trial(rehearsal.model, engine, first, later, spec.accumulation)
        return _seen(
            spec, replay(trial, self._gpu), first.kernels, (), self._gpu, zero_stage=engine.stage
        )

    def _micro_batch(self, spec: TrialSpec, rehearsal: Rehearsal) -> tuple[Stream, Stream | None]:
        accumulated = any(trial.accumulation > 1 for trial in self._trials)
        wanted = sorted({trial.micro_batch for trial in self._trials})
        affine = [size for size in wanted if size > 1]  # one sample alone is laid out unlike many
        samples = spec.micro_batch
        if len(affine) > 2 and samples in affine[1:-1]:
            ends = [
                self._traced(size, rehearsal, accumulated=accumulated)
                for size in (affine[0], affine[-1])
            ]
            first = between(ends[0][0], ends[1][0], samples)
            later = ends[0][1] and ends[1][1] and between(ends[0][1], ends[1][1], samples)
            if first is not None and (later is not None or not accumulated):
                return first, later
        return self._traced(samples, rehearsal, accumulated=accumulated)

    def _traced(
        self, samples: int, rehearsal: Rehearsal, *, accumulated: bool
    ) -> tuple[Stream, Stream | None]:
        key = (samples, accumulated)
        if key not in self._micro:
            self._micro[key] = rehearsal.micro_batches(samples, accumulated=accumulated)
        return self._micro[key]


def _seen(
    spec: TrialSpec,
    outcome: Outcome,
    kernels: frozenset[str],
    paged: Sequence[int],
    gpu: Gpu,
    *,
    zero_stage: int | None = None,
) -> Prediction:
    outside = gpu.context_bytes + gpu.kernels_bytes + gpu.cudnn_bytes * ("cudnn" in kernels)
    if zero_stage is None:
        reserved = settled(outcome)
    else:
        # The engine sets its partitions up with copies whose memory stays reserved.
        reserved = figure(outcome.peak_reserved, below=0.05, above=0.1, slack=20 * _MIB)
        outside += gpu.deepspeed_zero3_bytes if zero_stage == 3 else gpu.deepspeed_bytes
    # Managed memory comes in pages; how densely small states share them is the driver's business.
    least, most = sum(paged), sum(-(-nbytes // _PAGE) * _PAGE for nbytes in paged)
    return Prediction(
        trial_id=spec.trial_id,
        choices=spec.choices,
        allocated=figure(outcome.peak_allocated, below=0.01, above=0.01),
        reserved=reserved,
        device=Figure(
            bytes=reserved.bytes + outside + (least + most) // 2,
            low=reserved.low + outside,
            high=reserved.high + outside + most,
        ),
        anatomy=outcome.at_peak,
    )


def settled(outcome: Outcome) -> Figure:
    """Reserved memory, in the margins that two rounds of measurements needed around both orders of segments."""
    low, high = sorted((outcome.peak_reserved, outcome.reserved_otherwise))
    likely = outcome.peak_reserved if high - low <= _FRAGILE * high else (low + high) // 2
    return Figure(bytes=likely, low=int(low * 0.94), high=int(high * 1.07) + 20 * _MIB)


def _nothing(spec: TrialSpec, reason: str) -> Prediction:
    return Prediction(trial_id=spec.trial_id, choices=spec.choices, unknown=reason)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
