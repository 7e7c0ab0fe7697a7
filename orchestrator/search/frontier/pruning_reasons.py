"""Why a candidate was pruned, in a sentence: the ``reason`` of a skipped row.

``BOUNDS`` in tests/benchmarks/replay_scores.py reads the bounds back, to check them against what is
true.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.search.frontier.surrogate import Prediction
from orchestrator.search.model.measurements import Measurement
from orchestrator.units import GIB


def out_of_memory_below(micro_batch: int, trial_id: str) -> str:
    """A smaller candidate did not fit."""
    return f"micro-batch {micro_batch} of the same techniques ran out of memory in trial {trial_id}"


def more_than_the_device(
    prediction: Prediction, device_bytes: int, trial_ids: Sequence[str]
) -> str:
    """It would not fit, as predicted from these trials."""
    device = f"the device has {device_bytes / GIB:.2f} GiB"
    return (
        f"{_least_memory(prediction)}, and {device} (predicted from trials {', '.join(trial_ids)})"
    )


def dominated(
    prediction: Prediction, rival: Measurement, highest_ratio: float, tolerance: float
) -> str:
    """A measured candidate is about as good or better."""
    speed = f"reach at most {prediction.highest_speed:.1f} samples/s"
    ratio = f"at most {highest_ratio:.3f} times as fast as {_measured(rival)}"
    comparison = f"which is not better by more than {tolerance:.1%}"
    return f"{_least_memory(prediction)} and {speed}, {ratio}, {comparison}"


def host_bound(prediction: Prediction, rival: Measurement, pace_variation: float) -> str:
    """The host would limit it as it limited a measured candidate."""
    highest = (1 + pace_variation) * rival.samples_per_second
    need = f"{_least_memory(prediction)} and reach at most {highest:.1f} samples/s"
    work = f"it asks no less work of the host than {_measured(rival)}"
    return f"{need}: {work}, whose GPU waited for the host in every micro-batch"


def _least_memory(prediction: Prediction) -> str:
    return f"it would need at least {prediction.least_memory / GIB:.2f} GiB"


def _measured(measurement: Measurement) -> str:
    memory = f"{measurement.memory_bytes / GIB:.2f} GiB"
    return (
        f"trial {measurement.trial_id}, measured at {memory} and "
        f"{measurement.samples_per_second:.1f} samples/s"
    )
