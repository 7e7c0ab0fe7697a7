"""Peak memory equal to the byte, and throughput within 2 %, of the same training written by hand in bare.py."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.isolation.slot import Slot
from jobs.node import nvml
from jobs.record import Outcome
from jobs.spec import TrialSpec
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
  relative_error: 0
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


Figures = Callable[[str], dict[str, Any]]

# The driver is asked through NVML, so that this process never holds a CUDA context while others are measured.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not nvml.visible_uuids(), reason="needs a CUDA device"),
]


def last_json_line(command: list[str]) -> dict[str, Any]:
    """Run a Python command from the root of the tree; its last line of output, as JSON."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, (
        f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
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
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Figures]:
    """The measurements of a case's trial, run once; all in children of one slot's parent, as a sweep runs them."""
    measured: dict[str, dict[str, Any]] = {}

    with Slot(cpus=os.cpu_count() or 1) as slot:

        def run(case: str) -> dict[str, Any]:
            if case not in measured:
                record = slot.run(
                    planned(case, tmp_path_factory.mktemp(case)), timeout_seconds=600.0
                )
                assert record.outcome is Outcome.OK, f"{record.reason}\n{record.log}"
                assert (record.isolation, slot.hello["unclean"]) == ("fork", "")
                measured[case] = dict(record.measurements)
            return measured[case]

        yield run
    print(f"\n\n{table(measured)}")


def table(measured: dict[str, dict[str, Any]]) -> str:
    """Both sides of every case that ran, for a person to read (``pytest -s``)."""
    lines = [
        f"{'case':<22} {'bare bytes':>14} {'our bytes':>14} {'bare samples/s':>15} {'our samples/s':>14}"
    ]
    for case, figures in measured.items():
        expected = bare(case)
        lines.append(
            f"{case:<22} {expected['peak_allocated_bytes']:>14} {figures['peak_allocated_bytes']:>14}"
            f" {expected['samples_per_second']:>15.2f} {figures['samples_per_second']:>14.2f}"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("case", CASES)
def test_peak_equals_the_bare_script_to_the_byte(case: str, ours: Figures) -> None:
    expected, measured = bare(case), ours(case)
    assert measured["peak_allocated_bytes"] == expected["peak_allocated_bytes"]


@pytest.mark.parametrize("case", GPU_BOUND)
def test_throughput_is_within_two_percent_of_the_bare_script(case: str, ours: Figures) -> None:
    expected, measured = bare(case), ours(case)
    assert measured["samples_per_second"] == pytest.approx(expected["samples_per_second"], rel=0.02)
