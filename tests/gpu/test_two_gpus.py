"""Trials of two GPUs against the same training under torchrun, written by hand.

``pytest -s tests/gpu/test_two_gpus.py`` prints a row for each case: a script and then the trial, of
which the same steps count. The peak of every rank is within 1 %. The median step is within 3 %, or
within the 95 % intervals of both: what waits for its host is as fast as the host of that minute.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.reporting.markdown import line
from orchestrator.units import GIB
from tests.gpu import bare
from tests.gpu.bare_sharding import CASES, READY, STEPS
from tests.gpu.shared import ROOT, gpu_marks, measured

RANKS = 2
TORCHRUN = ("torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "-m")
CONFIG = load_config(ROOT / "configs" / "two_gpus.yaml")
HEADINGS = ("", "GiB by hand", "GiB", "%", "samples/s by hand", "samples/s", "%", "host-bound")
MICRO_BATCHES = (2, 8)
PACED_BY_GPU = 8

pytestmark = gpu_marks(gpus=RANKS, timeout_seconds=1200)


class Script:
    """A bare script, whose ranks have imported everything and wait for their turn."""

    def __init__(self, case: str, *options: str) -> None:
        words = (*TORCHRUN, "tests.gpu.bare_sharding", case, "--wait", *options)
        self._process: Any = subprocess.Popen(
            (sys.executable, "-m", *words),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # As many threads as the trial's: torchrun would give each rank one.
            env={**os.environ, "OMP_NUM_THREADS": str(os.cpu_count())},
        )

    def wait(self) -> None:
        """Wait until no rank imports anything beside what is measured."""
        is_ready = (words.strip() == READY for words in self._process.stdout)
        assert sum(itertools.islice(filter(None, is_ready), RANKS)) == RANKS

    def run(self) -> Mapping[str, Any]:
        """Train; the figures."""
        self._process.stdin.close()
        printed = self._process.stdout.read()
        assert self._process.wait() == 0
        figures: Mapping[str, Any] = json.loads(printed.splitlines()[-1])
        return figures

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="module")
def trials() -> Mapping[tuple[Any, int], TrialSpec]:
    """Sharding and micro-batch -> the trial, with as many steps as its script."""
    axes = {"sharding": tuple(CASES), "micro_batch": MICRO_BATCHES, "accumulation": (1,)}
    counted = STEPS - bare.WARMUP_STEPS
    steps = {"warmup_steps": bare.WARMUP_STEPS, "steps": counted, "relative_error": 0}
    return {
        (own.choices["sharding"], own.micro_batch): replace(
            own, measure=replace(own.measure, **steps)
        )
        for own in plan(replace(CONFIG, axes=axes, trials=())).trials
    }


@pytest.fixture(scope="module", params=MICRO_BATCHES)
def micro_batch(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def scripts(slot, micro_batch) -> Iterator[Mapping[str, Script]]:
    with ExitStack() as stack:
        own = {
            case: stack.enter_context(closing(Script(case, f"--micro-batch={micro_batch}")))
            for case in CASES
        }
        slot.start()
        for script in own.values():
            script.wait()
        yield own


@pytest.fixture(scope="module", autouse=True)
def headings() -> None:
    print("", line(HEADINGS), line(["---"] + ["---:"] * (len(HEADINGS) - 1)), sep="\n")


@pytest.mark.parametrize("case", CASES)
def test_ranks_have_the_peaks_and_the_speed_of_the_bare_script(
    case, micro_batch, scripts, trials, slot
):
    by_hand = scripts[case].run()
    record = measured(slot, trials[case, micro_batch])
    counted = [by_hand["step_seconds"], record.steps["device_seconds"][bare.WARMUP_STEPS :]]
    peaks = [own["rank_peak_allocated_bytes"] for own in (by_hand, record.measurements)]
    speeds = [RANKS * micro_batch / statistics.median(own) for own in counted]
    cells = [f"{case}, {micro_batch}"]
    for script, trial in ([max(own) / GIB for own in peaks], speeds):
        cells += [f"{script:.2f}", f"{trial:.2f}", f"{100 * (trial / script - 1):+.2f}"]
    # At once, so that a run that is cut has what was measured.
    print(line([*cells, f"{record.measurements['host_bound_share']:.0%}"]), flush=True)
    assert peaks[1] == pytest.approx(peaks[0], rel=0.01)
    if micro_batch == PACED_BY_GPU:
        assert speeds[1] == pytest.approx(speeds[0], rel=0.03)


@pytest.mark.parametrize(
    ("sharding", "loop"), [("ddp", "trainer_async"), ("fsdp2_full", "trainer")]
)
def test_compiled_blocks_with_a_chunked_loss_train_as_eager_ones_do(sharding, loop, slot, trials):
    eager = trials[sharding, 2]
    compiled = {"compile": "inductor_regional", "loss": "chunked", "loop": loop}
    (spec,) = plan(replace(CONFIG, axes={}, trials=({**eager.choices, **compiled},))).trials
    spec = replace(spec, measure=eager.measure)
    expected = measured(slot, eager).steps["loss"]
    assert measured(slot, spec).steps["loss"] == pytest.approx(expected, rel=0.01)
