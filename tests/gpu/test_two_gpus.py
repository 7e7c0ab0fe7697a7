"""Trials of two GPUs against the same training under torchrun, written by hand.

The peak of every rank is within 1 %, and the throughput within 3 %.
"""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.gpu.bare_sharding import CASES
from tests.gpu.shared import ROOT, gpu_marks, measured, run_here

Figures = Mapping[str, Any]

pytestmark = gpu_marks(gpus=2, timeout_seconds=1200)


@pytest.fixture(scope="module")
def ours(slot) -> Callable[[str], Figures]:
    trials = plan(load_config(ROOT / "configs" / "two_gpus.yaml")).trials
    specs = {trial.choices["sharding"]: trial for trial in reversed(trials)}
    return functools.cache(lambda case: measured(slot, specs[case]).measurements)


@functools.cache
def bare(case: str) -> Figures:
    ranks = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    # A process that sees two GPUs would use DataParallel.
    alone = case == "none"
    visible = {"CUDA_VISIBLE_DEVICES": "0"} if alone else {}
    command = ("-m", *(() if alone else ranks), "tests.gpu.bare_sharding", case)
    output = run_here(*command, **visible)
    figures: Figures = json.loads(output.splitlines()[-1])
    print(figures)
    return figures


@pytest.mark.parametrize("case", CASES)
def test_peak_of_every_rank_is_within_one_percent_of_the_bare_script(case, ours):
    figures = ours(case)
    peaks = figures.get("rank_peak_allocated_bytes", [figures["peak_allocated_bytes"]])
    print(f"\n{case}: {peaks}, {figures.get('sharding_engine')}")
    assert peaks == pytest.approx(bare(case)["rank_peak_allocated_bytes"], rel=0.01)


@pytest.mark.parametrize("case", CASES)
def test_throughput_is_within_three_percent_of_the_bare_script(case, ours):
    speed = ours(case)["samples_per_second"]
    print(f"\n{case}: {speed:.2f} samples/s")
    assert speed == pytest.approx(bare(case)["samples_per_second"], rel=0.03)
