"""What trials will need of a GPU's memory, predicted beside a sweep in processes of its own."""

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
"""The other cores are left to the trials on this host."""
_DEFAULT_GPU = "h200"
"""Its constants serve a GPU that has none. A search that measures soon corrects them."""
_LOWEST_PRIORITY = 19

Predict = Callable[[Sequence[TrialSpec], Gpu], list[Prediction]]


class BackgroundPredictor:
    """Predicts at the lowest priority while its context lasts. No trial waits for a prediction."""

    def __init__(self, predict: Predict = predict) -> None:
        self._predict = predict

    def __enter__(self) -> Self:
        # Spawned, because the driver has threads. The pool's workers end with it at any time.
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
        """Begin to predict; returns trial id -> bytes of device memory, which fills with time.

        ``gpu_model`` is the name that NVML gives. What cannot be predicted stays out.
        """
        # The dictionary fills from the pool; the search reads whatever is there.
        gpu = load_gpu(_constants_of(gpu_model))
        predicted: dict[str, float] = {}

        def keep(predictions: list[Prediction]) -> None:
            for prediction in predictions:
                if prediction.device is not None:
                    predicted[prediction.trial_id] = float(prediction.device.bytes)

        # Trials that share a trace go to one worker, which then makes the trace once.
        for group in sharing_traces(trials):
            self._pool.apply_async(
                self._predict, (group, gpu), callback=keep, error_callback=_log_failure
            )
        return predicted


def _constants_of(gpu_model: str) -> str:
    """The name of the file with a GPU model's constants."""
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
