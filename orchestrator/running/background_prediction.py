"""Predicts the GPU memory of trials in background processes, while a sweep runs."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from jobs.node.environment import cores
from jobs.spec import TrialSpec
from orchestrator.prediction.estimator import predict, sharing_traces
from orchestrator.prediction.gpus import Gpu, known_gpus, load_gpu
from orchestrator.prediction.prediction import Prediction

_CORES_PER_PROCESS = 4
"""There is one background process for every four cores. It uses one; the rest are for trials."""
_DEFAULT_GPU = "h200"
"""The GPU whose constants are used if a GPU model has no file of constants.

The search corrects the predictions with its first measurements.
"""
_LOWEST_PRIORITY = 19

Predict = Callable[[Sequence[TrialSpec], Gpu], list[Prediction]]


class BackgroundPredictor:
    """A context in which memory is predicted at the lowest priority. No trial waits for it."""

    def __init__(self, predict: Predict = predict) -> None:
        self._predict = predict

    def __enter__(self) -> Self:
        # Spawned, not forked, because the driver has threads.
        context = multiprocessing.get_context("spawn")
        # At most a quarter of the cores, because trials on this host need the others.
        processes = max(1, cores() // _CORES_PER_PROCESS)
        self._pool = context.Pool(processes, _prepare_worker)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.terminate()
        self._pool.join()

    def of(self, trials: Sequence[TrialSpec], gpu_model: str) -> Mapping[str, float]:
        """Start to predict, and return at once.

        The result maps a trial id to bytes of device memory. It is empty at first, and gets an
        entry with every prediction. A trial that cannot be predicted never gets one. ``gpu_model``
        is the name that NVML gives.
        """
        gpu = load_gpu(_constants_of(gpu_model))
        predicted: dict[str, float] = {}

        def keep(predictions: list[Prediction]) -> None:
            for prediction in predictions:
                if prediction.device is not None:
                    predicted[prediction.trial_id] = float(prediction.device.bytes)

        # Trials that share a trace go to the same worker, so that the trace is made once.
        for group in sharing_traces(trials):
            self._pool.apply_async(
                self._predict, (group, gpu), callback=keep, error_callback=_log_failure
            )
        return predicted


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
    os.nice(_LOWEST_PRIORITY)
