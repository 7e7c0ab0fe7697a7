"""Trials against the same training written by hand in bare.py.

Their peak memory is equal to the byte, and their throughput within 2 %.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jobs.isolation.slot import Slot
from jobs.record import Outcome
from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.gpu.shared import BERT_LARGE, gpu_marks

ROOT = Path(__file__).parents[2]
TIMEOUT = 600.0

CONFIG = (
    BERT_LARGE
    + """\
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
)

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

pytestmark = gpu_marks(timeout_seconds=900)


@functools.cache
def bare(case: str) -> Figures:
    """The figures of a script that has the GPU for itself."""
    return _figures_of_script(case)


@functools.cache
def bare_peaks() -> Mapping[str, int]:
    """The peak of every case, in bytes. All scripts run side by side, so speeds say nothing."""
    with ThreadPoolExecutor(len(CASES)) as pool:
        figures = list(pool.map(_figures_of_script, CASES))
    return {case: own["peak_allocated_bytes"] for case, own in zip(CASES, figures, strict=True)}


def _figures_of_script(case: str) -> Figures:
    """The JSON object on the last line of the script."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "tests/gpu/bare.py", case],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def planned(case: str, folder: Path) -> TrialSpec:
    """The same training, as a sweep would plan it."""
    path = folder / "sweep.yaml"
    path.write_text(CONFIG.format(choices=CASES[case]))
    (spec,) = plan(load_config(path)).trials
    return spec


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Figures]]:
    """Returns the measurements of a case's trial, each run once in a forked child of one slot."""
    measured: dict[str, Figures] = {}

    with Slot(cpus=os.cpu_count() or 1) as slot:

        def run(case: str) -> Figures:
            if case not in measured:
                record = slot.run(planned(case, tmp_path_factory.mktemp(case)), TIMEOUT)
                assert record.outcome is Outcome.OK, f"{record.reason}\n{record.delivery.log}"
                assert (record.delivery.isolation, slot.hello["unclean"]) == ("fork", "")
                measured[case] = dict(record.measurements)
            return measured[case]

        yield run
    print(f"\n\n{table(measured)}")


def table(measured: Mapping[str, Figures]) -> str:
    """Both sides of every case that ran, for people to read (``pytest -s``)."""
    rows = [("case", "bare bytes", "our bytes", "bare samples/s", "our samples/s")]
    for case, figures in measured.items():
        speeds: tuple[str, ...] = ("", "")
        if case in GPU_BOUND and bare.cache_info().currsize == len(GPU_BOUND):
            pair = (bare(case), figures)
            speeds = tuple(f"{own['samples_per_second']:.2f}" for own in pair)
        peak = str(bare_peaks()[case])
        rows.append((case, peak, str(figures["peak_allocated_bytes"]), *speeds))
    return "\n".join(f"{row[0]:<22}" + "".join(f"{cell:>16}" for cell in row[1:]) for row in rows)


@pytest.mark.parametrize("case", CASES)
def test_peak_equals_the_bare_script_to_the_byte(case: str, ours: Callable[[str], Figures]) -> None:
    assert ours(case)["peak_allocated_bytes"] == bare_peaks()[case]


@pytest.mark.parametrize("case", GPU_BOUND)
def test_throughput_is_within_two_percent_of_the_bare_script(
    case: str, ours: Callable[[str], Figures]
) -> None:
    expected = bare(case)["samples_per_second"]
    assert ours(case)["samples_per_second"] == pytest.approx(expected, rel=0.02)
