"""What trials will need of a GPU's memory, predicted beside a sweep in processes of their own."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from jobs.node.environment import cores
from jobs.spec import TrialSpec
from orchestrator.prediction.estimator import predict, sharing_traces
from orchestrator.prediction.gpus import Gpu, known_gpus, load_gpu
from orchestrator.prediction.prediction import Prediction

_CORES_EACH = 4
"""One process for so many cores: the trials' hosts need theirs."""
_ANY_GPU = "h200"
"""Whose constants serve a GPU that has none: a search that measures soon sees how far they are off."""

Predict = Callable[[Sequence[TrialSpec], Gpu], list[Prediction]]


class Foretelling:
    """Predicts at the lowest priority for as long as it is entered; nothing waits for it, and nobody misses what it
    cannot tell. ``of`` a GPU model's trials is a mapping from trial ids to bytes of device memory that grows."""

    def __init__(self, predict: Predict = predict) -> None:
        self._predict = predict

    def __enter__(self) -> Foretelling:
        # Spawned, for the driver has threads; workers of a pool end with it, whatever they are doing.
        context = multiprocessing.get_context("spawn")
        self._pool = context.Pool(max(1, cores() // _CORES_EACH), _step_aside)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._pool.terminate()
        self._pool.join()

    def of(self, trials: Sequence[TrialSpec], gpu_model: str) -> Mapping[str, float]:
        """Begin with these trials."""
        named = (name for name in known_gpus() if name in gpu_model.lower().split())
        gpu = load_gpu(next(named, _ANY_GPU))
        found: dict[str, float] = {}

        def told(predictions: list[Prediction]) -> None:
            found.update(
                {one.trial_id: float(one.device.bytes) for one in predictions if one.device}
            )

        for group in sharing_traces(trials):
            self._pool.apply_async(
                self._predict, (group, gpu), callback=told, error_callback=_not_told
            )
        return found


def _not_told(error: BaseException) -> None:
    logging.getLogger(__name__).warning("some trials' memory is not predicted: %s", error)


def _step_aside() -> None:
    """A worker's first act: whatever it imports would open a context on the GPU that trials are measured on."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.nice(19)
