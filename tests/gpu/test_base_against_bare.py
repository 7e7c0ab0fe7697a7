"""LoRA on a 16-bit and on quantized bases against the same training by hand in bare_base.py.

The bare script loads a checkpoint through transformers; a trial quantizes random weights layer by
layer. Their peak memory is equal to the byte.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.isolation.slot import Slot
from jobs.node import nvml
from jobs.record import Outcome
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.gpu.bare_base import CASES, CONFIG, STEPS, TOKENS

ROOT = Path(__file__).parents[2]
TIMEOUT = 600.0
MICRO_BATCH = 4
WARMUP_STEPS = 2

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not nvml.visible_uuids(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    with Slot(cpus=os.cpu_count() or 1) as slot:
        yield slot


def bare_peak(case: str) -> int:
    """The peak that the script prints on its last line."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "tests/gpu/bare_base.py", case, "--micro-batch", str(MICRO_BATCH)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    figures = json.loads(done.stdout.splitlines()[-1])
    print(figures)
    peak: int = figures["peak_allocated_bytes"]
    return peak


@pytest.mark.parametrize("case", CASES)
def test_peak_on_a_base_equals_the_bare_script(case: str, slot: Slot, tmp_path: Path) -> None:
    choices = {
        "base": case,
        "adapter": "lora_r8_all_linear",
        "precision": "bf16",
        "micro_batch": MICRO_BATCH,
    }
    config = {
        "model": {"task": "causal-lm", "architecture": "llama", "config": CONFIG},
        "data": {"synthetic": {"sequence_length": TOKENS, "samples": STEPS * MICRO_BATCH}},
        "trials": [choices],
        "measure": {
            "warmup_steps": WARMUP_STEPS,
            "steps": STEPS - WARMUP_STEPS,
            "relative_error": 0,
        },
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(json.dumps(config))
    (spec,) = plan(load_config(path)).trials
    record = slot.run(spec, TIMEOUT)
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.delivery.log}"
    row = record.measurements
    print({name: row[name] for name in row if name.startswith("weights_")})
    if case != "16bit":
        assert row["base_quantized_share"] == 1.0
    assert row["peak_allocated_bytes"] == bare_peak(case)
