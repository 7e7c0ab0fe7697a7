"""Calibration data of GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from orchestrator.prediction.gpus import load_gpu


def test_load_gpu_calibration_file_replaces_its_constants(tmp_path: Path) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text(
        yaml.safe_dump([{"device": "NVIDIA L4", "multiprocessors": 58, "flops_per_second": {}}])
    )
    calibrated = load_gpu(str(file))
    assert calibrated == replace(
        load_gpu("h200"),
        name="NVIDIA L4",
        multiprocessors=58,
        source=str(file),
        assumed=calibrated.assumed,
    )
    assert "kernels_bytes" in calibrated.assumed
    assert "multiprocessors" not in calibrated.assumed
    assert load_gpu("h200").is_measured
    with pytest.raises(ValueError, match="valid choices: h200"):
        load_gpu("h2000")
