"""Candidates that differ in their data loader alone: which of them needs no trial."""

import math

import numpy as np
import pytest

from orchestrator.search.best.data_loaders import Loaders
from orchestrator.search.model.candidates import candidates_of
from tests.benchmarks.grids import make_spec

LOADERS = ("workers_0", "workers_4", "workers_8")


@pytest.fixture
def loaders() -> Loaders:
    """Three loaders of micro-batch 2, then the same of micro-batch 4."""
    listed = [
        make_spec({"dataloader": loader, "micro_batch": size, "accumulation": 1})
        for size in (2, 4)
        for loader in LOADERS
    ]
    return Loaders(candidates_of(listed))


SPEED = np.array([1.0, 3.0, 2.0, 1.0, 2.0, 3.0])
ALL = np.ones(6, bool)


def waiting(loaders: Loaders, can_run: np.ndarray = ALL, measured: tuple[int, ...] = ()) -> str:
    waits = loaders.wait_for_a_twin(SPEED, can_run, measured)
    return "".join(map(str, waits.astype(int)))


def test_the_fastest_twin_comes_first(loaders):
    assert waiting(loaders) == "101110"
    # Of those that can run.
    assert waiting(loaders, np.array([1, 0, 1, 1, 1, 1], bool)) == "110110"
    # Once a twin is measured, none of its group waits.
    assert waiting(loaders, measured=(0,)) == "000110"


def test_a_loader_that_a_gpu_waited_for_comes_later_everywhere(loaders):
    loaders.note(5, 0.11, 1.0)
    assert waiting(loaders) == "101101"
    assert loaders.least_seconds().tolist() == [0.0] * 6


def test_no_twin_is_faster_where_the_gpu_did_not_wait(loaders):
    loaders.note(0, 0.1, 2.0)
    loaders.note(1, 0.0, 1.0)
    loaders.note(2, 0.0, 3.0)
    least = loaders.least_seconds()
    assert least == pytest.approx([math.exp(-0.003)] * 3 + [0.0] * 3)
