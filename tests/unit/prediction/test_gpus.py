"""Calibration data of GPUs."""

from dataclasses import replace

import pytest
import yaml

from orchestrator.prediction.gpus import known_gpus, load_gpu
from orchestrator.units import MIB


def test_load_gpu_calibration_file_replaces_its_constants(tmp_path):
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
    with pytest.raises(ValueError, match=r"valid choices: .*h200"):
        load_gpu("h2000")


def test_load_gpu_of_a_card_has_its_own_figures_and_the_h200s_constants():
    t4 = load_gpu("T4")
    assert (t4.name, t4.capability, t4.total_bytes) == ("t4", 7.5, 15_360 * MIB)
    assert t4.cublas_workspace_bytes == 8_519_680
    assert load_gpu("h100").cublas_workspace_bytes == 32 * MIB
    assert "context_bytes" in t4.assumed
    assert not {"capability", "total_bytes", "multiprocessors"} & {*t4.assumed}


def test_every_card_can_be_loaded():
    assert {"t4", "v100_16gb", "h200", "b200"} <= {*known_gpus()}
    assert all(load_gpu(name).total_bytes > 10**10 for name in known_gpus())
