"""The rule of thumb for several GPUs: DDP if it fits, else ZeRO-3, with the largest micro-batch."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.units import GIB
from tests.benchmarks.rule_of_thumb import rule_of_thumb
from tests.conftest import TINY_CONFIG
from tests.support.config_files import config_of

STATES = {"ddp": 30, "zero3": 15}
"""GiB without the activations, of which each sample has 2."""


def run(spec: TrialSpec, timeout: float) -> TrialRecord:
    gib = STATES[str(spec.choices["sharding"])] + 2 * spec.micro_batch
    if gib > 80:
        return TrialRecord(spec=spec, outcome=Outcome.OUT_OF_MEMORY, reason="CUDA out of memory")
    measured: dict[str, Any] = {"device_peak_bytes": gib * GIB, "samples_per_second": 1.0}
    return TrialRecord(spec=spec, outcome=Outcome.OK, measurements=measured)


@pytest.mark.parametrize(
    ("gib", "expected"), [(96, ("ddp", 16)), (40, ("ddp", 4)), (31, ("zero3", 8)), (16, None)]
)
def test_rule_of_thumb_takes_the_largest_micro_batch_of_the_first_that_fits(
    gib, expected, tmp_path
):
    config = config_of(tmp_path, TINY_CONFIG, resources={"gpus_per_trial": 2})
    slot: Any = SimpleNamespace(run=run)
    found = rule_of_thumb(config, slot, gib * GIB)
    ends_with = found and (found.spec.choices["sharding"], found.spec.micro_batch)
    assert ends_with == expected
