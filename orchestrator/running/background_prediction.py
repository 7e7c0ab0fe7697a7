"""Predicts the GPU memory of trials, and of whole epochs, in background processes."""

import functools
import logging
import multiprocessing
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from multiprocessing.pool import AsyncResult, Pool
from typing import Any

from jobs.node.environment import cores
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.prediction.estimator import likely_memory, predict, sharing_traces
from orchestrator.prediction.gpus import Gpu, known_gpus, load_gpu
from orchestrator.prediction.prediction import Prediction
from orchestrator.prediction.time.ranks_time import time_of
from orchestrator.prediction.tune.tune_forecast import Across
from orchestrator.prediction.unsupported import has_images, unpredictable
from orchestrator.running.observers import Observer

_DEFAULT_GPU = "h200"
"""The GPU whose constants stand for those of an unknown model, until the search corrects them."""

_MOST_PROCESSES = 4
"""Each takes a gigabyte of memory."""

Choose = Callable[[], Sequence[TrialSpec]]
Predict = Callable[[Any, Gpu], list[Prediction]]
"""Of what ``Group`` returns for a trace."""
Group = Callable[[Sequence[TrialSpec]], Sequence[Any]]


def _sharing_traces(trials: Sequence[TrialSpec]) -> list[list[TrialSpec]]:
    return sharing_traces(spec for spec in trials if not unpredictable(spec))


class BackgroundPredictor(ExitStack, Observer):
    """Predicts memory at the lowest priority during its context, once the first trial has begun,
    because the start of a sweep needs the cores and the disk. No trial waits for it, unless the
    search begins with forecasts: then it starts earlier, and the second trial waits for some."""

    def __init__(
        self,
        predict: Predict = predict,
        group: Group = _sharing_traces,
        *,
        gives_times: bool = False,
    ) -> None:
        """``group``: the trials that share traces go to the same worker, so that each trace is made
        once. ``gives_times``: for a search that begins with forecasts; others expect what is
        recorded."""
        super().__init__()
        self._predict = predict
        self._group = group
        self._gives_times = gives_times
        self._requests: list[tuple[Choose, Gpu, dict[str, float], dict[str, float]]] = []
        self._seconds: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._answers = threading.Semaphore(0)
        self._has_waited = False
        self._is_compared = False
        """Whether a trial's transformers was compared with the one that is traced."""

    def of(self, choose: Choose, gpu_model: str) -> Mapping[str, float]:
        """Trial id -> bytes of device memory, of the trials that ``choose`` returns later: filled
        with every prediction. ``gpu_model`` is the name that NVML gives."""
        predicted: dict[str, float] = {}
        request = (choose, load_gpu(constants_of(gpu_model)), predicted, self._seconds[gpu_model])
        self._requests.append(request)
        return predicted

    def seconds_on(self, gpu_model: str) -> Mapping[str, float]:
        """Trial id -> likely seconds of a sample of the same trials, where they are known."""
        return self._seconds[gpu_model]

    def begin_early(self) -> None:
        """Start to predict before the first trial, if the search begins with forecasts."""
        if self._gives_times:
            self._begin()

    def started(self, spec: TrialSpec) -> None:
        """Start to predict, if this is the first trial."""
        self._begin()

    def _begin(self) -> None:
        requests, self._requests = self._requests, []
        if not requests:
            return
        try:
            pool = workers()
        except OSError as error:  # the limit of processes is reached
            _log_failure(error)
            self._has_waited = True
            return
        self.callback(pool.join)
        self.enter_context(pool)
        # A large plan takes seconds to choose from, so a thread does it.
        chooser = self.enter_context(ThreadPoolExecutor(max_workers=1))
        for request in requests:
            chooser.submit(self._answer, pool, *request)

    def completed(self, record: TrialRecord, waits: bool) -> TrialRecord | None:
        """The first record waits for as many forecasts as there are workers, at most as long as its
        trial took: without them, the next trial would be of what is usually fast."""
        if not self._gives_times or self._has_waited:
            return record
        if not waits:
            return None
        self._has_waited = True
        due = time.monotonic() + record.slot_seconds
        for _ in range(_number_of_workers()):
            self._answers.acquire(timeout=max(0.0, due - time.monotonic()))
        return record

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        """Warn if the first measured trial had another transformers than the one that is traced."""
        used = record.environment.get("transformers")
        if self._is_compared or not measured or not used:
            return
        self._is_compared = True
        if used != (traced := version("transformers")):
            logging.getLogger(__name__).warning(
                "memory is predicted with transformers %s, and trials run with %s: between two "
                "versions, the memory of an encoder-decoder differed by up to 28 %%",
                traced,
                used,
            )

    def _answer(
        self,
        pool: Pool,
        choose: Choose,
        gpu: Gpu,
        predicted: dict[str, float],
        seconds: dict[str, float],
    ) -> None:
        """Give the chosen trials to the workers. The pool calls ``keep`` later."""

        def keep(predictions: list[Prediction]) -> None:
            for prediction in predictions:
                if prediction.device is not None:
                    predicted[prediction.trial_id] = float(prediction.device.bytes)
                else:
                    _warn(f"some trials' memory is not predicted: {prediction.unknown}")
                step = prediction.step if self._gives_times else None
                time = None if step is None else time_of(step, gpu)
                if time is not None:
                    seconds[prediction.trial_id] = time.likely_seconds_per_sample
            self._answers.release()

        def fail(error: BaseException) -> None:
            _log_failure(error)
            self._answers.release()

        unused = _number_of_workers()
        try:
            for group in self._group(choose()):
                pool.apply_async(self._predict, (group, gpu), callback=keep, error_callback=fail)
                unused -= 1
        except Exception as error:  # the thread would hide it
            _log_failure(error)
        for _ in range(unused):
            self._answers.release()


def constants_of(gpu_model: str) -> str:
    """The known GPU whose constants stand for those of the GPU with this name."""
    words = gpu_model.lower().split()
    return next((name for name in known_gpus() if name in words), _DEFAULT_GPU)


def _log_failure(error: BaseException) -> None:
    _warn(f"some trials' memory is not predicted: {error}")


@functools.cache
def _warn(sentence: str) -> None:
    """Once for each sentence: what fails for one trial may fail for all."""
    logging.getLogger(__name__).warning(sentence)


def workers(number: int = 0) -> Pool:
    """Processes that predict; by default at most a quarter of the cores, because trials on this
    host need the others. Raises OSError if no more processes may start."""
    # Spawned, not forked, because the driver has threads.
    context = multiprocessing.get_context("spawn")
    return context.Pool(number or _number_of_workers(), _prepare_worker)


def _number_of_workers() -> int:
    return max(1, cores() // 4)


@contextmanager
def across_cores() -> Iterator[Across]:
    """A context with a ``map`` over processes, if there are cores and processes for it. It runs
    ahead of its caller by one item for each process. A script of the user's may have no guard
    against being imported by these, so commands alone use it."""
    number = min(cores(), _MOST_PROCESSES)
    pool = None
    with suppress(OSError):  # the limit of processes is reached
        pool = workers(number) if number > 1 else None
    if pool is None:
        yield map
        return

    def across(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        running: deque[AsyncResult[Any]] = deque()
        for item in items:
            running.append(pool.apply_async(function, (item,)))
            if len(running) > number:
                yield running.popleft().get()
        for result in running:
            yield result.get()

    with pool:
        yield across
        # A process that is ended leaves semaphores behind.
        pool.close()
        pool.join()


def _prepare_worker() -> None:
    # A library could create a context on a GPU, which would count as a trial's memory.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # Threads that wait for work would take cores from the trial.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.nice(19)


_PATIENCE_SECONDS = 60.0
"""How long a record waits for its forecast, whose process first imports PyTorch."""


class EpochForecasts(ExitStack, Observer):
    """Forecasts an epoch's growth while the trial runs, because the allocator's segments of one
    length do not serve the next: a trial meets a few lengths, and an epoch all."""

    def __init__(self, gpu_model: str) -> None:
        """``gpu_model``: the name that NVML gives; empty without a GPU, where nothing grows."""
        super().__init__()
        self._gpu = load_gpu(constants_of(gpu_model)) if gpu_model else None
        self._pool: Pool | None = None
        self._forecasts: dict[str, AsyncResult[list[Prediction]]] = {}
        self._due: dict[str, float] = {}
        """Trial id -> when its record waits no longer."""

    def started(self, spec: TrialSpec) -> None:
        """Forecast a trial of a few steps whose rows may differ in length."""
        is_whole_epoch = spec.measure.steps is None
        has_growth = spec.may_be_ragged and not has_images(spec)
        if self._gpu is None or not has_growth or is_whole_epoch or spec.follow_up:
            return
        if self._pool is None:
            self._pool = self.enter_context(workers())
        self._forecasts[spec.trial_id] = self._pool.apply_async(likely_memory, ([spec], self._gpu))

    def completed(self, record: TrialRecord, waits: bool = True) -> TrialRecord | None:
        """The record with ``epoch_growth_bytes``, if its rows differ and a forecast is possible;
        None if the forecast is not ready, unless it ``waits``."""
        forecast = self._forecasts.get(record.trial_id)
        if forecast is None or record.outcome is not Outcome.OK:
            return record
        now = time.monotonic()
        left = self._due.setdefault(record.trial_id, now + _PATIENCE_SECONDS) - now
        if not waits and not forecast.ready() and left > 0:
            return None
        del self._forecasts[record.trial_id]
        try:
            (own,) = forecast.get(max(0.0, left))
        except Exception as error:  # whatever is wrong with a forecast, the trial is measured
            _warn(f"an epoch's memory is not forecast: {error!r}")
            return record
        if own.device is None or own.trial_device is None:
            if own.unknown and not unpredictable(record.spec):
                _warn(f"an epoch's memory is not forecast: {own.unknown}")
            return record
        growth = own.device.bytes - own.trial_device.bytes
        return replace(record, measurements={**record.measurements, "epoch_growth_bytes": growth})
