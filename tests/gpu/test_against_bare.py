"""Trials against the same training written by hand in bare.py.

Their peak memory is equal to the byte, and their throughput within 2 %.
"""

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.gpu.shared import BERT_LARGE, bare_figures, gpu_marks, measured, planned

CASES = {
    "fp32_bs4": "{precision: fp32, micro_batch: 4}",
    "bf16_bs16": "{precision: bf16, micro_batch: 16}",
    "bf16_bs64_checkpoint": "{precision: bf16, micro_batch: 64, activations: checkpoint}",
    "adamw_bnb_8bit": "{precision: bf16, micro_batch: 16, optimizer: adamw_bnb_8bit}",
    "adafactor": "{precision: bf16, micro_batch: 16, optimizer: adafactor}",
    "lora": "{precision: bf16, micro_batch: 16, adapter: lora_r8}",
    "zero2_offload": "{precision: bf16, micro_batch: 16, offload: zero2_cpu_optimizer}",
}
GPU_BOUND = ("fp32_bs4", "bf16_bs64_checkpoint")

Figures = Mapping[str, Any]

pytestmark = gpu_marks()


@pytest.fixture(scope="module")
def bare_peaks(request) -> Mapping[str, int]:
    """The peak of each chosen case, in bytes. The scripts run side by side: speeds say nothing."""
    chosen = [
        case for case in CASES if any(f"[{case}]" in own.name for own in request.session.items)
    ]
    with ThreadPoolExecutor(len(chosen)) as pool:
        figures = list(pool.map(functools.partial(bare_figures, "bare"), chosen))
    return {case: own["peak_allocated_bytes"] for case, own in zip(chosen, figures, strict=True)}


@pytest.fixture(scope="module")
def ours(slot, tmp_path_factory) -> Callable[[str], Figures]:
    @functools.cache
    def run(case: str) -> Figures:
        folder = tmp_path_factory.mktemp(case)
        every_step = {"warmup_steps": 8, "steps": "epoch", "inspect": False}
        record = measured(slot, planned(folder, BERT_LARGE, CASES[case], **every_step))
        assert (record.provenance.isolation, slot.hello["unclean"]) == ("fork", "")
        return record.measurements

    return run


@pytest.mark.parametrize("case", CASES)
def test_peak_equals_the_bare_script_to_the_byte(case, ours, bare_peaks):
    peak = ours(case)["peak_allocated_bytes"]
    print(f"\n{case}: bare {bare_peaks[case]:,} B, this project {peak:,} B")
    assert peak == bare_peaks[case]


@pytest.mark.parametrize("case", GPU_BOUND)
def test_throughput_is_within_two_percent_of_the_bare_script(case, ours):
    expected = bare_figures("bare", case)["samples_per_second"]
    speed = ours(case)["samples_per_second"]
    print(f"\n{case}: bare {expected:.2f} samples/s, this project {speed:.2f}")
    assert speed == pytest.approx(expected, rel=0.02)
