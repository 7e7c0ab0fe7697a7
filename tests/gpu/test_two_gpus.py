"""Trials of two GPUs against the same training under torchrun, written by hand.

``pytest -s tests/gpu/test_two_gpus.py`` prints the table of both: a script and then the trial, case
by case. The peak of every rank is within 1 %, and the median step within 3 %.
"""

import itertools
import json
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
from tests.gpu.bare_sharding import CASES, MICRO_BATCH, READY, STEPS
from tests.gpu.shared import ROOT, gpu_marks, measured

RANKS = 2
TORCHRUN = ("torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "-m")
CONFIG = load_config(ROOT / "configs" / "two_gpus.yaml")
HEADINGS = ("", "GiB by hand", "GiB", "%", "samples/s by hand", "samples/s", "%")

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
def trials() -> Mapping[Any, TrialSpec]:
    """Sharding -> its trial, with as many steps as its script."""
    planned = plan(CONFIG).trials
    steps = {"warmup_steps": bare.WARMUP_STEPS, "steps": STEPS - bare.WARMUP_STEPS}
    return {
        trial.choices["sharding"]: replace(trial, measure=replace(trial.measure, **steps))
        for trial in planned
        if trial.micro_batch == MICRO_BATCH
    }


@pytest.fixture(scope="module")
def scripts(slot) -> Iterator[Mapping[str, Script]]:
    with ExitStack() as stack:
        own = {case: stack.enter_context(closing(Script(case))) for case in CASES}
        slot.start()
        for script in own.values():
            script.wait()
        yield own


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """Its lines, which are printed at the end."""
    lines = [line(HEADINGS), line(["---"] + ["---:"] * (len(HEADINGS) - 1))]
    yield lines
    print("", *lines, sep="\n")


@pytest.mark.parametrize("case", CASES)
def test_ranks_have_the_peaks_and_the_speed_of_the_bare_script(case, scripts, trials, slot, table):
    by_hand = scripts[case].run()
    row = measured(slot, trials[case]).measurements
    peaks = [own["rank_peak_allocated_bytes"] for own in (by_hand, row)]
    speeds = [RANKS * MICRO_BATCH / own["step_seconds_median"] for own in (by_hand, row)]
    cells = [case]
    for script, trial in ([max(own) / GIB for own in peaks], speeds):
        cells += [f"{script:.2f}", f"{trial:.2f}", f"{100 * (trial / script - 1):+.2f}"]
    table.append(line(cells))
    assert peaks[1] == pytest.approx(peaks[0], rel=0.01)
    assert speeds[1] == pytest.approx(speeds[0], rel=0.03)


@pytest.mark.parametrize(
    ("sharding", "loop"), [("ddp", "trainer_async"), ("fsdp2_full", "trainer")]
)
def test_compiled_blocks_with_a_chunked_loss_train_as_eager_ones_do(sharding, loop, slot, trials):
    eager = trials[sharding]
    compiled = {"compile": "inductor_regional", "loss": "chunked", "loop": loop}
    (spec,) = plan(replace(CONFIG, axes={}, trials=({**eager.choices, **compiled},))).trials
    spec = replace(spec, measure=eager.measure)
    expected = measured(slot, eager).steps["loss"]
    assert measured(slot, spec).steps["loss"] == pytest.approx(expected, rel=0.01)
