"""How long GPUs of one node exchange a tensor: latency, and bytes by the rate of their link."""

from __future__ import annotations

from orchestrator.prediction.gpus import REACHED, Gpu
from orchestrator.prediction.time.operations import Work

_SENT = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0}
"""How often a rank of a ring sends the parts of the others, as NCCL's own tests count the bus."""
_LATENCY = 2e-5
"""Seconds of a collective of few bytes, one host: nccl-tests print 10 to 30 µs."""


def exchange_seconds(exchanged: Work, gpu: Gpu, ranks: int) -> float | None:
    """All collective operations one after the other; None if the card's link is not known."""
    if not gpu.link_bytes_per_second:
        return None
    seconds = 0.0
    for kind, rows in exchanged.by_kind.items():
        rate = gpu.link_bytes_per_second * REACHED[kind]
        sent = _SENT[kind] * (ranks - 1) / ranks * rows[:, 1]
        seconds += float(((_LATENCY + sent / rate) * rows[:, 2]).sum())
    return seconds
