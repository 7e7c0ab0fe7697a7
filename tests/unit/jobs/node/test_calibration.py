"""Rates measured under load."""

from __future__ import annotations

import pytest
import torch

from jobs.node.calibration import Load, calibrate


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a CUDA device")
def test_calibrate_without_a_gpu_measures_the_cpu() -> None:
    calibration = calibrate(Load(matrix=64, copy_bytes=2**16, round_seconds=0.001))
    assert set(calibration.flops_per_second) == {"fp32", "bf16"}
    assert min(calibration.flops_per_second.values()) > 0
    assert calibration.copy_bytes_per_second > 0
    assert calibration.device
