"""The answers among measured batch sizes."""

import math

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.batch_size_answer import BatchMeasurement, BatchSizeResult, advised
from orchestrator.reporting.verbs.batch_size import describe
from orchestrator.search.batch_size.measured_sizes import measurement_of
from tests.support.records import H200, make_record, with_losses

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
    return BatchMeasurement(**{**measured, **fields})


def answer(*sizes: BatchMeasurement, effective_batch: int | None = None) -> BatchSizeResult:
    return BatchSizeResult(
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


def test_answer_names_largest_fastest_and_saturation():
    result = answer(size(8, 50.0), size(16, 99.0), size(32, 100.0), size(64, 90.0), size(128, None))
    assert micro_batch(result.largest) == 64
    assert micro_batch(result.fastest) == 32
    assert micro_batch(result.saturation) == 16
    assert micro_batch(result.below_saturation) == 8


def test_answer_accumulated_is_the_fastest_way_to_the_effective_batch():
    sizes = [size(8, 50.0, 8), size(16, 80.0, 4), size(64, 70.0), size(4, 99.0)]
    assert micro_batch(answer(*sizes, effective_batch=64).accumulated) == 16
    assert answer(*sizes, effective_batch=7).accumulated is None


def test_answer_alignment_needs_a_measured_difference():
    pair = answer(size(64, 110.0), size(65, 100.0)).alignment
    assert [micro_batch(own) for own in pair] == [65, 64]
    assert answer(size(64, 101.0), size(65, 100.0)).alignment is None
    thrashing = size(65, 100.0, flags=(Flag(FlagKind.THRASHING, 3),))
    assert answer(size(64, 110.0), thrashing).alignment is None


def test_measurement_of_a_record_leaves_the_margin_free():
    environment = {**H200, "gpu_memory_bytes": 100 * GB}
    record = make_record(environment=environment, measurements={"gpu_used_before_bytes": GB})
    measurement = measurement_of(record, 0.05)
    assert measurement.limit_bytes == 94 * GB
    assert measurement.fits
    assert not measurement_of(record, 99 * GB).fits
    assert measurement_of(make_record(), 0.05).limit_bytes == math.inf


def test_answers_leave_out_sizes_that_train_wrongly():
    wrong = (Flag(FlagKind.LOSS_TIMES_ACCUMULATION, 4.0),)
    found = answer(
        size(16, 100.0),
        size(16, 120.0, accumulation=4, flags=wrong),
        size(8, 90.0, accumulation=8),
        effective_batch=64,
    )
    assert found.accumulated.micro_batch == 8
    assert [own.micro_batch for own in found.left_out] == [16]
    assert [own["micro_batch"] for own in found.to_json()["left_out"]] == [16]
    not_finite = (Flag(FlagKind.LOSS_NOT_FINITE, 2.0),)
    found = answer(size(16, 100.0), size(32, 150.0, flags=not_finite))
    assert found.fastest.micro_batch == 16
    assert found.largest.micro_batch == 32


def batch_record(micro_batch: int, accumulation: int, speed: float, loss: float) -> TrialRecord:
    record = make_record(micro_batch=micro_batch, accumulation=accumulation, speed=speed)
    return with_losses(record, [loss, loss * 0.99, loss * 0.98, loss * 0.97])


def test_advised_finds_a_loss_that_was_not_divided():
    records = [batch_record(64, 1, 90.0, 0.7), batch_record(16, 4, 120.0, 2.8)]
    sizes = [measurement_of(record, 0.05) for record in records]
    checked = advised(answer(*sizes, effective_batch=64), records)
    assert checked.accumulated.micro_batch == 64
    assert [flag.kind for flag in checked.left_out[0].flags] == [FlagKind.LOSS_TIMES_ACCUMULATION]
    assert "left out: 16×4 (120 samples/s): loss times accumulation" in describe(checked, "H200")


def test_advised_names_the_nearest_better_effective_batch():
    gradients = {"parameters_trainable": 10, "parameter_dtypes": "float32"}
    records = []
    for micro_batch, speed in ((1, 10.0), (32, 300.0)):
        records.append(make_record(micro_batch=micro_batch, speed=speed, measurements=gradients))
    sizes = [measurement_of(record, 0.05) for record in records]
    checked = advised(answer(*sizes, effective_batch=257), records)
    assert checked.nearby[0].effective_batch == 256
    assert "effective batch 256 instead of 257: 32×8, at least 300" in describe(checked, "H200")
    assert checked.to_json()["nearby_effective_batches"][0]["effective_batch"] == 256
