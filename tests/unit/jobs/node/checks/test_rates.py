"""Calibrated GPUs compared with others of their model."""

from __future__ import annotations

from jobs.node.checks.findings import Severity
from jobs.node.checks.rates import judge, unfit
from tests.support.machines import calibration_of


def test_judge_warns_of_a_gpu_slower_than_its_model() -> None:
    _, slow = judge([calibration_of(0, 790e12), calibration_of(2, 700e12)])
    assert slow.severity is Severity.WARNING
    assert slow.message == (
        "GPU X GPU-2 is 11% slower than the fastest of its model at bf16;"
        " fp32 50, tf32 400, bf16 700 TFLOP/s, 4,000 GB/s copied, 1980 MHz at 55 °C"
    )


def test_judge_compares_gpus_of_one_model_only() -> None:
    calibrations = [calibration_of(0, 790e12), calibration_of(4, 300e12, device="GPU Y")]
    assert [finding.severity for finding in judge(calibrations)] == [Severity.OK] * 2


def test_unfit_compares_with_the_median_of_the_model() -> None:
    # The median is 790e12: the last GPU is 24 % slower than that.
    rates = [900e12, 790e12, 790e12, 600e12]
    calibrations = [calibration_of(index, rate) for index, rate in enumerate(rates)]
    assert unfit(calibrations, 0.1) == {3: "it is 24% slower than the median of its model at bf16"}


def test_unfit_names_a_gpu_that_is_held_down() -> None:
    assert unfit([calibration_of(0, 790e12, slowed=("power brake",))], 0.1) == {
        0: "it is throttled under load: power brake"
    }
