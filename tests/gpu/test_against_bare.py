"""Peak memory equal to the byte, and throughput within 2 %, of the same training written by hand in bare.py."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from jobs.spec import TrialSpec, to_json
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan

ROOT = Path(__file__).parents[2]

CONFIG = """\
model:
  task: sequence-classification
  architecture: bert
  config: {{hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, intermediate_size: 4096}}
data:
  synthetic: {{sequence_length: 512, samples: 512}}
trials:
  - {choices}
measure:
  warmup_steps: 8
  steps: epoch
  inspect: false
"""

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


def has_cuda() -> bool:
    """Asked of the driver, so that this process never holds a CUDA context while others are measured."""
    try:
        pynvml.nvmlInit()
        return bool(pynvml.nvmlDeviceGetCount() > 0)
    except pynvml.NVMLError:
        return False


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not has_cuda(), reason="needs a CUDA device"),
]


def last_json_line(command: list[str]) -> dict[str, Any]:
    """Run a Python command from the root of the tree; its last line of output, as JSON."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


@functools.cache
def bare(case: str) -> dict[str, Any]:
    """The figures of the hand-written script."""
    return last_json_line(["tests/gpu/bare.py", case])


def planned(case: str, folder: Path) -> TrialSpec:
    """The same training, as a sweep would plan it."""
    path = folder / "sweep.yaml"
    path.write_text(CONFIG.format(choices=CASES[case]))
    (spec,) = plan(load_config(path)).trials
    return spec


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The measurements of a case's trial, run once."""

    @functools.cache
    def run(case: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(case)
        path = folder / "spec.json"
        path.write_text(json.dumps(to_json(planned(case, folder))))
        record = last_json_line(["-m", "jobs", str(path)])
        assert record["outcome"] == "ok", record["reason"]
        measurements: dict[str, Any] = record["measurements"]
        return measurements

    return run


@pytest.mark.parametrize("case", CASES)
def test_peak_equals_the_bare_script_to_the_byte(case: str, ours: Any) -> None:
    expected, measured = bare(case), ours(case)
    print(
        f"{case}: peak {measured['peak_allocated_bytes']} (bare {expected['peak_allocated_bytes']}) B, "
        f"{measured['samples_per_second']:.2f} (bare {expected['samples_per_second']:.2f}) samples/s"
    )
    assert measured["peak_allocated_bytes"] == expected["peak_allocated_bytes"]


@pytest.mark.parametrize("case", GPU_BOUND)
def test_throughput_is_within_two_percent_of_the_bare_script(case: str, ours: Any) -> None:
    assert ours(case)["samples_per_second"] == pytest.approx(bare(case)["samples_per_second"], rel=0.02)
