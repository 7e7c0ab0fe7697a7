"""Predicts the memory of trials. Those that differ only in batch or optimizer share traces."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.spec import TrialSpec
from orchestrator.analysis.grouping import grouped
from orchestrator.prediction.bounds import bounded, traceable
from orchestrator.prediction.gpus import REPRESENTATIVES, Gpu
from orchestrator.prediction.libraries import quick_imports
from orchestrator.prediction.model_group import ModelGroup, Replays
from orchestrator.prediction.prediction import Prediction, unknown
from orchestrator.prediction.shared import Shared, built_key, model_key, shared_in_process
from orchestrator.prediction.streams.affine_stream import MicroBatches, Stream
from orchestrator.prediction.streams.replay import TrialStreams, replay
from orchestrator.prediction.unsupported import runs_trl, unpredictable

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.cuda.cuda_attention import Picks
    from orchestrator.prediction.tracing.deep_step import DeepStep
    from orchestrator.prediction.tracing.rows.batches import BatchShapes


class HeldGroup(ModelGroup):
    """As ``ModelGroup``, with micro-batches that take nothing: weights and optimizer states remain.

    So a model whose forward pass cannot be traced has bounds, too.
    """

    def _micro_batches(self, batch: BatchShapes, samples: int) -> MicroBatches:
        return Stream(events=(), samples=samples), None

    def _replays(self, spec: TrialSpec, streams: TrialStreams, kept: float) -> Replays:
        return [replay(streams, self._sized, upwards=False)], None

    def _evaluation_of(self, spec: TrialSpec) -> None:
        return None


Watch = Callable[[int, int], object]
"""Called with how many trials are predicted, and how many there are."""


def unwatched(done: int, trials: int) -> None:
    """The ``Watch`` of a caller that shows no progress."""


def predict(
    trials: Sequence[TrialSpec], gpu: Gpu, watch: Watch = unwatched, shared: Shared | None = None
) -> list[Prediction]:
    """Predictions in the order of the trials; ``shared`` may ask for likely figures alone. Output
    of libraries goes to stderr."""
    return [own for (own,) in predict_on(trials, [gpu], watch, shared)]


def likely_memory(trials: Sequence[TrialSpec], gpu: Gpu) -> list[Prediction]:
    """The likely memory of trials, without intervals of an epoch's other orders of rows."""
    return predict(trials, gpu, shared=shared_in_process(is_likely=True))


def predict_on(
    trials: Sequence[TrialSpec],
    gpus: Sequence[Gpu],
    watch: Watch = unwatched,
    shared: Shared | None = None,
) -> list[list[Prediction]]:
    """For each trial, in order, its predictions by the constants of each GPU."""
    by_id: dict[str, list[Prediction]] = {}
    shared = shared or Shared()
    watch(0, len(trials))
    with quiet_libraries():
        for group in sharing_traces(trials):
            for own in predictions(group, gpus, shared):
                by_id[own[0].trial_id] = own
                watch(len(by_id), len(trials))
    return [by_id[trial.trial_id] for trial in trials]


def predictions(
    trials: Sequence[TrialSpec], gpus: Sequence[Gpu], shared: Shared
) -> list[list[Prediction]]:
    """For each trial, in order, its predictions by the constants of each GPU. The trials share
    traces. A GPU whose attention would take the kernels of an earlier one has the predictions of
    that one: the workspaces of its libraries differ by less than the intervals."""
    predicted: list[list[Prediction]] = []
    picks: Picks = set()
    for gpu in gpus:
        same = next((own for own in range(len(predicted)) if _equal(picks, gpus[own], gpu)), None)
        if same is not None:
            predicted.append(predicted[same])
            continue
        of_gpu, picks = _predictions(trials, gpu, shared)
        predicted.append(of_gpu)
    return [list(own) for own in zip(*predicted, strict=True)]


def _equal(picks: Picks, gpu: Gpu, other: Gpu) -> bool:
    """Whether every call of attention takes the same kernel on both."""
    order = list(REPRESENTATIVES)
    one, two = order.index(gpu.kernels), order.index(other.kernels)
    return all(pick[one] == pick[two] for pick in picks)


def _predictions(
    trials: Sequence[TrialSpec], gpu: Gpu, shared: Shared
) -> tuple[list[Prediction], Picks]:
    """One for each trial, and the attention kernels that each GPU would pick. A trial that is not
    traced has bounds, if it can be without some techniques."""
    simpler = list(map(traceable, trials))
    specs = [own.spec for own in simpler]
    if unpredictable(specs[0]):
        return [unknown(spec, unpredictable(spec)) for spec in trials], set()
    make = HeldGroup if all(own.holds_only for own in simpler) else ModelGroup
    found, picks = _traced(specs, gpu, shared, make)
    predicted = []
    for spec, own, prediction in zip(trials, simpler, found, strict=True):
        answer = replace(prediction, trial_id=spec.trial_id, choices=spec.choices)
        reason = unpredictable(spec)
        predicted.append(bounded(answer, reason, own) if reason else answer)
    return predicted, picks


def _traced(
    specs: Sequence[TrialSpec],
    gpu: Gpu,
    shared: Shared,
    make: Callable[..., ModelGroup | HeldGroup],
) -> tuple[list[Prediction], Picks]:
    try:
        with traced_step(specs[0], gpu, shared) as step:
            group = make(specs, step, gpu, shared)
            return list(map(group.prediction, specs)), step.picks
    except Exception as error:  # a model or a file of the user's may raise anything
        return [unknown(spec, error) for spec in specs], set()


@contextmanager
def traced_step(spec: TrialSpec, gpu: Gpu, shared: Shared) -> Iterator[DeepStep]:
    """The step of trials that share traces with ``spec``, as the first of its ranks. Raises what
    building the model raises."""
    with quick_imports():
        from orchestrator.prediction.tracing.deep_step import DeepStep
        from orchestrator.prediction.tracing.fakes.fake_ranks import fake_ranks
    with fake_ranks(spec.world_size):
        # A sharded model is of one process group, which ends here, and TRL's of one data set.
        is_own = spec.world_size > 1 or runs_trl(spec)
        built = {} if is_own else shared.built.setdefault(built_key(spec), {})
        yield DeepStep(spec, gpu, shared.known, built)


def longest_rows_group(
    trials: Sequence[TrialSpec], step: DeepStep, gpu: Gpu, shared: Shared
) -> ModelGroup:
    """The trials, on the longest of their rows alone."""
    step.batches = step.batches.of_longest_rows()
    return ModelGroup(trials, step, gpu, shared)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Within it, libraries log and warn of nothing, and print to stderr; garbage waits, because
    traces and replays make millions of objects and few circles of them."""
    before, collected = logging.root.manager.disable, gc.get_threshold()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(100_000, *collected[1:])
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        gc.set_threshold(*collected)


def sharing_traces(trials: Iterable[TrialSpec]) -> list[list[TrialSpec]]:
    """The trials in groups that share traces: each group has one model, and one way to run it if
    techniques that are not traced are left out."""
    return list(grouped(trials, lambda spec: model_key(traceable(spec).spec)).values())
