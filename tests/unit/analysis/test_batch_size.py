"""The answers among measured batch sizes."""

from __future__ import annotations

import math

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome
from orchestrator.analysis.batch_size import (
    BatchMeasurement,
    BatchSizeAnswer,
    margin_bytes,
    measurement_of,
)
from tests.support.records import H200, make_record

GB = 10**9


def size(micro_batch: int, speed: float | None, accumulation: int = 1, **fields: object):
    measured = {
        "micro_batch": micro_batch,
        "accumulation": accumulation,
        "trial_id": f"{micro_batch}x{accumulation}",
        "outcome": Outcome.OK if speed else Outcome.OUT_OF_MEMORY,
        "reason": "",
        "memory_bytes": micro_batch * GB,
        "limit_bytes": 100 * GB,
        "samples_per_second": speed,
        "error95": 0.01,
        "flags": (),
        "slot_seconds": 1.0,
    }
    return BatchMeasurement(**{**measured, **fields})  # type: ignore[arg-type]


def answer(*sizes: BatchMeasurement, effective_batch: int | None = None) -> BatchSizeAnswer:
    return BatchSizeAnswer(
        techniques="bf16",
        margin_bytes=None,
        device_bytes=None,
        tolerance=0.02,
        sizes=sizes,
        effective_batch=effective_batch,
        max_micro_batch=512,
        next_bytes=None,
        granularity=1,
        unfinished="",
    )


def micro_batch(measurement: BatchMeasurement | None) -> int | None:
    return measurement.micro_batch if measurement else None


def test_answer_names_largest_fastest_and_saturation() -> None:
    result = answer(size(8, 50.0), size(16, 99.0), size(32, 100.0), size(64, 90.0), size(128, None))
    assert micro_batch(result.largest) == 64
    assert micro_batch(result.fastest) == 32
    assert micro_batch(result.saturation) == 16
    assert micro_batch(result.below_saturation) == 8


def test_answer_accumulated_is_the_fastest_way_to_the_effective_batch() -> None:
    sizes = [size(8, 50.0, 8), size(16, 80.0, 4), size(64, 70.0), size(4, 99.0)]
    assert micro_batch(answer(*sizes, effective_batch=64).accumulated) == 16
    assert answer(*sizes, effective_batch=7).accumulated is None


def test_answer_alignment_needs_a_measured_difference() -> None:
    pair = answer(size(64, 110.0), size(65, 100.0)).alignment
    assert pair is not None
    assert [micro_batch(own) for own in pair] == [65, 64]
    assert answer(size(64, 101.0), size(65, 100.0)).alignment is None
    thrashing = size(65, 100.0, flags=(Flag(FlagKind.THRASHING, 3),))
    assert answer(size(64, 110.0), thrashing).alignment is None


def test_answer_of_nothing_is_plain_json() -> None:
    raw = answer().to_json()
    assert (raw["largest"], raw["sizes"], raw["multiples_of_8_matter"]) == (None, [], False)


def test_measurement_of_a_record_leaves_the_margin_free() -> None:
    environment = {**H200, "gpu_memory_bytes": 100 * GB}
    record = make_record(environment=environment, measurements={"gpu_used_before_bytes": GB})
    measurement = measurement_of(record, 0.05)
    assert measurement.limit_bytes == 94 * GB
    assert measurement.fits
    assert not measurement_of(record, 99 * GB).fits
    assert measurement_of(make_record(), 0.05).limit_bytes == math.inf


def test_margin_bytes_is_a_share_below_one() -> None:
    assert margin_bytes(1000, 0.05) == 50
    assert margin_bytes(1000, 300) == 300
