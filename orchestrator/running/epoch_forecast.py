"""Adds to trials on rows of unequal length the memory that a whole epoch takes beyond theirs."""

import logging
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.pool import AsyncResult, Pool

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.prediction import Prediction
from orchestrator.running.background_prediction import constants_of, workers
from orchestrator.running.observers import Observer

_PATIENCE_SECONDS = 60.0
"""How long a record waits for its forecast, whose process first imports PyTorch."""


class EpochForecasts(ExitStack, Observer):
    """Forecasts an epoch's growth while the trial runs: both take seconds, on other processors. The
    allocator keeps segments of one length that do not serve the next, so memory grows with the
    lengths that are met. A trial meets a few of them, and the replay of an epoch meets all."""

    def __init__(self, gpu_model: str) -> None:
        """``gpu_model``: the name that NVML gives; empty without a GPU, where nothing grows."""
        super().__init__()
        self._gpu = load_gpu(constants_of(gpu_model)) if gpu_model else None
        self._pool: Pool | None = None
        self._forecasts: dict[str, AsyncResult[list[Prediction]]] = {}

    def started(self, spec: TrialSpec) -> None:
        """Forecast a trial of a few steps whose rows may differ in length."""
        synthetic = spec.data.synthetic
        may_differ = synthetic is None or synthetic.lengths is not None
        if self._gpu is None or not may_differ or spec.measure.steps is None or spec.follow_up:
            return
        if self._pool is None:
            self._pool = self.enter_context(workers())
        self._forecasts[spec.trial_id] = self._pool.apply_async(predict, ([spec], self._gpu))

    def completed(self, record: TrialRecord) -> TrialRecord:
        """The record with ``epoch_growth_bytes``, if its rows differ and a forecast is possible."""
        forecast = self._forecasts.pop(record.trial_id, None)
        if forecast is None or record.outcome is not Outcome.OK:
            return record
        try:
            (own,) = forecast.get(_PATIENCE_SECONDS)
        except Exception as error:  # whatever is wrong with a forecast, the trial is measured
            logging.getLogger(__name__).warning("an epoch's memory is not forecast: %r", error)
            return record
        if own.device is None or own.trial_device is None:
            return record
        growth = max(0, own.device.bytes - own.trial_device.bytes)
        return replace(record, measurements={**record.measurements, "epoch_growth_bytes": growth})
