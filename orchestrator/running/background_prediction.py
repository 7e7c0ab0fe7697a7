"""Predicts the GPU memory of trials in background processes, while a sweep runs."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.pool import Pool
from types import TracebackType
from typing import Self

from jobs.node.environment import cores
from jobs.spec import TrialSpec
from orchestrator.prediction.estimator import predict, sharing_traces
from orchestrator.prediction.gpus import Gpu, known_gpus, load_gpu
from orchestrator.prediction.prediction import Prediction
from orchestrator.running.observers.base import Observer

_CORES_PER_PROCESS = 4
"""There is one background process for every four cores. It uses one; the rest are for trials."""
_DEFAULT_GPU = "h200"
"""The GPU whose constants are used if a GPU model has no file of constants.

The search corrects the predictions with its first measurements.
"""
_LOWEST_PRIORITY = 19

Predict = Callable[[Sequence[TrialSpec], Gpu], list[Prediction]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Question:
    """Trials to predict, and the mapping that gets the answers."""

    choose: Callable[[], Sequence[TrialSpec]]
    gpu: Gpu
    predicted: dict[str, float]


class BackgroundPredictor(Observer):
    """Predicts memory at the lowest priority during its context. No trial waits for it.

    It is an observer of the session. Its processes start once the first trial has begun, because
    the start of a sweep needs the cores and the disk.
    """

    def __init__(self, predict: Predict = predict) -> None:
        self._predict = predict
        self._questions: list[_Question] = []
        self._stack = ExitStack()
        self._has_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def of(self, choose: Callable[[], Sequence[TrialSpec]], gpu_model: str) -> Mapping[str, float]:
        """What is known of the trials that ``choose`` returns, which is called later.

        The result maps a trial id to bytes of device memory. It is empty at first, and gets an
        entry with every prediction. A trial that cannot be predicted never gets one. ``gpu_model``
        is the name that NVML gives.
        """
        gpu = load_gpu(_constants_of(gpu_model))
        question = _Question(choose=choose, gpu=gpu, predicted={})
        self._questions.append(question)
        return question.predicted

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
        processes = max(1, cores() // _CORES_PER_PROCESS)
        # Spawned, not forked, because the driver has threads.
        context = multiprocessing.get_context("spawn")
        pool = context.Pool(processes, _prepare_worker)
        self._stack.callback(pool.join)
        self._stack.enter_context(pool)
        # A large plan takes seconds to choose from, so a thread does it.
        chooser = self._stack.enter_context(ThreadPoolExecutor(max_workers=1))
        for question in self._questions:
            choosing = chooser.submit(self._answer, question, pool)
            choosing.add_done_callback(_log_if_failed)

    def _answer(self, question: _Question, pool: Pool) -> None:
        """Give a question's trials to the workers. The pool calls ``keep`` later."""

        def keep(predictions: list[Prediction]) -> None:
            for prediction in predictions:
                if prediction.device is not None:
                    question.predicted[prediction.trial_id] = float(prediction.device.bytes)

        # Trials that share a trace go to the same worker, so that the trace is made once.
        for group in sharing_traces(question.choose()):
            pool.apply_async(
                self._predict, (group, question.gpu), callback=keep, error_callback=_log_failure
            )


def _constants_of(gpu_model: str) -> str:
    """The name of the file with the constants of a GPU model, or of the default GPU."""
    words = gpu_model.lower().split()
    for name in known_gpus():
        if name in words:
            return name
    return _DEFAULT_GPU


def _log_if_failed(choosing: Future[None]) -> None:
    error = choosing.exception()
    if error is not None:
        _log_failure(error)


def _log_failure(error: BaseException) -> None:
    logging.getLogger(__name__).warning("some trials' memory is not predicted: %s", error)


def _prepare_worker() -> None:
    """Keep a worker of the pool off the GPUs, and at the lowest priority."""
    # A library could create a context on a GPU, which would count as a trial's memory.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.nice(_LOWEST_PRIORITY)
