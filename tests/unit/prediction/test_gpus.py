"""Calibration data of GPUs."""

from dataclasses import replace

import pytest
import yaml

from jobs.spec import to_json
from orchestrator.prediction.gpus import REPRESENTATIVES, known_cards, load_gpu
from orchestrator.prediction.time.links import exchange_seconds
from orchestrator.prediction.time.operations import Operation, Work
from orchestrator.running.examination import calibrations_of
from orchestrator.units import MIB
from tests.support.machines import calibration_of


def test_load_gpu_calibration_file_replaces_its_constants(tmp_path):
    file = tmp_path / "gpus.yaml"
    measured = {"multiprocessors": 58, "capability": 8.9, "flops_per_second": {"bf16": 1e14}}
    file.write_text(
        yaml.safe_dump([{"device": "NVIDIA L4", **measured, "copy_bytes_per_second": 2.5e11}])
    )
    calibrated = load_gpu(str(file))
    assert calibrated == replace(
        load_gpu("h200"),
        name="NVIDIA L4",
        **measured,
        bytes_per_second=2.5e11,
        source=str(file),
        assumed=calibrated.assumed,
    )
    assert "kernels_bytes" in calibrated.assumed
    assert "multiprocessors" not in calibrated.assumed
    assert not calibrated.is_measured()
    assert load_gpu("h200").is_measured(deepspeed=True)


def test_calibration_of_a_cpu_is_no_gpu(tmp_path):
    file = tmp_path / "cpu.yaml"
    file.write_text(yaml.safe_dump([to_json(calibration_of(0, 1e11, capability=0.0))]))
    with pytest.raises(ValueError, match="no GPU was measured"):
        load_gpu(str(file))
    file.write_text(yaml.safe_dump([to_json(calibration_of(0, 1e14, capability=8.9))]))
    assert load_gpu(str(file)).kernels == "consumer"


def test_load_gpu_of_a_card_has_its_own_figures_and_the_h200s_constants():
    t4 = load_gpu("T4")
    assert (t4.name, t4.capability, t4.total_bytes) == ("t4", 7.5, 15_360 * MIB)
    assert t4.cublas_workspace_bytes == 8_519_680
    assert load_gpu("h100").cublas_workspace_bytes == 32 * MIB
    assert "context_bytes" in t4.assumed
    assert not {"capability", "total_bytes", "multiprocessors"} & {*t4.assumed}


def test_h100_was_measured_without_deepspeed():
    h100 = load_gpu("h100")
    assert h100.is_measured()
    assert not h100.is_measured(deepspeed=True)


def test_every_card_has_rates_of_the_formats_that_it_has_tensor_cores_for():
    cards = known_cards()
    assert {"t4", "v100_16gb", "h200", "b200"} <= {card.name for card in cards}
    for card in cards:
        assert card.total_bytes > 10**10
        assert card.bytes_per_second > 10**11
        assert ("bf16" in card.flops_per_second) == (card.capability >= 8.0)
        assert ("fp8" in card.flops_per_second) == (card.capability >= 8.9)
        assert card.source


@pytest.mark.parametrize(
    ("name", "kernels"),
    [("v100_16gb", "volta"), ("a100_40gb", "ampere"), ("rtx_5090", "consumer"), ("b200", "hopper")],
)
def test_cards_with_the_same_attention_kernels_have_a_representative(name, kernels):
    assert load_gpu(name).kernels == kernels
    assert load_gpu(REPRESENTATIVES[kernels]).kernels == kernels


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("rtx4090", "rtx_4090"),
        ("5090", "rtx_5090"),
        ("NVIDIA GeForce RTX 3090", "rtx_3090"),
        ("A100-80GB", "a100_80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100_40gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000"),
        ("Tesla V100-SXM2-32GB", "v100_32gb"),
    ],
)
def test_load_gpu_takes_any_spelling_of_a_card(name, card):
    assert load_gpu(name) == load_gpu(card)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("h2000", r"did you mean \"h200\"\? Valid choices: .*l4"),
        ("rtx 490", 'did you mean "rtx_4090"'),
        ("H10O", 'did you mean "h100"'),
        ("l4os", 'did you mean "l40s"'),
        ("NVIDIA H100 PCIe", 'did you mean "h100"'),
        # Another size is another card.
        ("RTX 4090 48GB", "no calibration"),
        ("H100 94GB", "no calibration"),
        ("V100", r"(?i)valid choices: v100_16gb, v100_32gb, or a file"),
    ],
)
def test_load_gpu_of_no_known_card_names_the_nearest_or_the_possible(name, said):
    with pytest.raises(ValueError, match=said):
        load_gpu(name)


def test_file_with_measured_links_forecasts_what_they_took(tmp_path):
    took = {"all-reduce": 5e-3, "all-gather": 3.1e-3, "reduce-scatter": 3.3e-3}
    sent = {"all-reduce": 2**29, "all-gather": 2**28, "reduce-scatter": 2**28}
    links = [
        {"operation": name, "bytes": 2**29, "bus_bytes_per_second": sent[name] / seconds}
        for name, seconds in took.items()
    ]
    # Small tensors take a latency, which says nothing of the rate.
    links.append({"operation": "all-reduce", "bytes": 2**20, "bus_bytes_per_second": 1e9})
    reports = [
        {"calibrations": [to_json(calibration_of(0, 1e14, capability=9.0))], "links": links},
        {"links": []},
    ]
    file = tmp_path / "gpu.yaml"
    file.write_text(yaml.safe_dump(calibrations_of(reports)))
    calibrated = load_gpu(str(file))
    for name, seconds in took.items():
        exchanged = Work.of([Operation(kind=name, writes=((0, 2**29),))])
        assert exchange_seconds(exchanged, calibrated, 2) == pytest.approx(seconds, rel=0.1)
