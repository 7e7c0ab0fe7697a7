"""Trials of which only what outlives a step is asked for, which needs no step to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.spec import TrialSpec
from orchestrator.prediction.model_group import ModelGroup
from orchestrator.prediction.streams.affine_stream import MicroBatches, Stream
from orchestrator.prediction.streams.replay import ReplayedPeaks, TrialStreams, replay

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.rows.batches import BatchShapes


class HeldGroup(ModelGroup):
    """As ``ModelGroup``, with micro-batches that take nothing: weights and optimizer states remain.

    So a model whose forward pass cannot be traced has bounds, too.
    """

    def _micro_batches(self, batch: BatchShapes, samples: int) -> MicroBatches:
        return Stream(events=(), samples=samples), None

    def _replays(self, spec: TrialSpec, streams: TrialStreams) -> list[ReplayedPeaks]:
        return [replay(streams, self._sized, upwards=False)]

    def _evaluation_of(self, spec: TrialSpec) -> None:
        return None

    def _knows_step(self, spec: TrialSpec) -> bool:
        return False
