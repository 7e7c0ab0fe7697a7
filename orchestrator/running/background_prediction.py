"""Predicts the GPU memory of trials in background processes, while a sweep runs."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.pool import Pool

from jobs.node.environment import cores
from jobs.spec import TrialSpec
from orchestrator.prediction.estimator import predict, sharing_traces
from orchestrator.prediction.gpus import Gpu, known_gpus, load_gpu
from orchestrator.prediction.prediction import Prediction
from orchestrator.running.observers.observer import Observer

_DEFAULT_GPU = "h200"
"""The GPU whose constants are used if a GPU model has no file of constants.

The search corrects the predictions with its first measurements.
"""

Predict = Callable[[Sequence[TrialSpec], Gpu], list[Prediction]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    """Trials to predict, and the mapping that gets the answers."""

    choose: Callable[[], Sequence[TrialSpec]]
    gpu: Gpu
    predicted: dict[str, float]


class BackgroundPredictor(ExitStack, Observer):
    """Predicts memory at the lowest priority during its context. No trial waits for it.

    It is an observer of the session. Its processes start once the first trial has begun, because
    the start of a sweep needs the cores and the disk.
    """

    def __init__(self, predict: Predict = predict) -> None:
        super().__init__()
        self._predict = predict
        self._requests: list[_Request] = []
        self._has_begun = False

    def of(self, choose: Callable[[], Sequence[TrialSpec]], gpu_model: str) -> Mapping[str, float]:
        """What is known of the trials that ``choose`` returns, which is called later.

        The result maps a trial id to bytes of device memory. It is empty at first, and gets an
        entry with every prediction. A trial that cannot be predicted never gets one. ``gpu_model``
        is the name that NVML gives.
        """
        gpu = load_gpu(_constants_of(gpu_model))
        request = _Request(choose=choose, gpu=gpu, predicted={})
        self._requests.append(request)
        return request.predicted

    def started(self, spec: TrialSpec) -> None:
        """Start to predict, if this is the first trial."""
        if self._has_begun:
            return
        self._has_begun = True
        try:
            self._begin()
        except OSError as error:  # the limit of processes is reached
            _log_failure(error)

    def _begin(self) -> None:
        # At most a quarter of the cores, because trials on this host need the others.
        processes = max(1, cores() // 4)
        # Spawned, not forked, because the driver has threads.
        context = multiprocessing.get_context("spawn")
        pool = context.Pool(processes, _prepare_worker)
        self.callback(pool.join)
        self.enter_context(pool)
        # A large plan takes seconds to choose from, so a thread does it.
        chooser = self.enter_context(ThreadPoolExecutor(max_workers=1))
        for request in self._requests:
            chooser.submit(self._answer, request, pool)

    def _answer(self, request: _Request, pool: Pool) -> None:
        """Give a request's trials to the workers. The pool calls ``keep`` later."""

        def keep(predictions: list[Prediction]) -> None:
            for prediction in predictions:
                if prediction.device is not None:
                    request.predicted[prediction.trial_id] = float(prediction.device.bytes)

        try:
            # Trials that share a trace go to the same worker, so that the trace is made once.
            for group in sharing_traces(request.choose()):
                pool.apply_async(
                    self._predict, (group, request.gpu), callback=keep, error_callback=_log_failure
                )
        except Exception as error:  # the thread would hide it
            _log_failure(error)


def _constants_of(gpu_model: str) -> str:
    """The name of the file with the constants of a GPU model, or of the default GPU."""
    words = gpu_model.lower().split()
    for name in known_gpus():
        if name in words:
            return name
    return _DEFAULT_GPU


def _log_failure(error: BaseException) -> None:
    logging.getLogger(__name__).warning("some trials' memory is not predicted: %s", error)


def _prepare_worker() -> None:
    """Keep a worker of the pool off the GPUs, and at the lowest priority."""
    # A library could create a context on a GPU, which would count as a trial's memory.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.nice(19)
