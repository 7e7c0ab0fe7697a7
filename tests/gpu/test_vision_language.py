"""On a GPU: vision-language trials against the same training by hand, and the shipped sweep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.isolation.slot import Slot
from jobs.node import nvml
from jobs.record import Outcome
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.storage.layout import TRIALS
from orchestrator.storage.tables.table_reader import read_trials_file
from tests.gpu.bare_vision import CASES, CONFIG, IMAGE_SIZE, MICRO_BATCH, STEPS, TOKENS

ROOT = Path(__file__).parents[2]
TIMEOUT = 600.0
WARMUP_STEPS = 2
CHOICES: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "checkpoint": {"activations": "checkpoint"},
    "frozen": {"vision": "frozen"},
    "lora": {"adapter": "lora_r8_all_linear"},
}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not nvml.visible_uuids(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    with Slot(cpus=os.cpu_count() or 1) as slot:
        yield slot


def run_here(*command: str) -> str:
    """What a Python command of this project prints."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("case", CASES)
def test_peak_of_images_with_texts_equals_the_bare_script(
    case: str, slot: Slot, tmp_path: Path
) -> None:
    synthetic = {
        "sequence_length": TOKENS,
        "image_size": IMAGE_SIZE,
        "samples": STEPS * MICRO_BATCH,
    }
    config = {
        "model": {
            "task": "image-text-to-text",
            "architecture": "qwen2_5_vl",
            "config": CONFIG,
        },
        "data": {"synthetic": synthetic},
        "trials": [{"precision": "bf16", "micro_batch": MICRO_BATCH, **CHOICES[case]}],
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
    figures: dict[str, Any] = json.loads(
        run_here("tests/gpu/bare_vision.py", case).splitlines()[-1]
    )
    print(figures, record.measurements["peak_allocated_bytes"])
    assert record.measurements["peak_allocated_bytes"] == figures["peak_allocated_bytes"]
    assert record.measurements["image_tokens_per_sample"] == 256


def test_shipped_vision_sweep_finds_a_frontier_in_two_minutes(tmp_path: Path) -> None:
    output = tmp_path / "vlm"
    options = ["--time-budget", "120s", "--output", str(output)]
    print(run_here("-m", "orchestrator.sweep", "configs/vlm.yaml", *options))
    rows = read_trials_file(output / TRIALS).rows
    trained = [row for row in rows if row["outcome"] == "ok"]
    assert trained
    assert {row["image_tokens_per_sample"] for row in trained} == {576.0}
    assert not [row for row in rows if row["outcome"] == "failed"]
