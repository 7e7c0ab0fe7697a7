"""Predicted memory of every candidate, from predictions of a few."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jobs.spec import TrialSpec
from orchestrator.search.answer.predicted_memory import PredictedMemory
from orchestrator.search.answer.technique_priors import Effect, TechniquePriors
from orchestrator.search.frontier.candidates import candidates_of
from orchestrator.units import GIB
from tests.benchmarks.grids import make_spec

PRIORS = TechniquePriors(
    effects={
        "compile": {
            "none": Effect(deviation=0.0, memory_deviation=0.0),
            "inductor": Effect(log_memory=-0.2, memory_deviation=0.3, models=3),
        },
        "activations": {"keep": Effect(deviation=0.0, memory_deviation=0.0)},
    }
)


def trials() -> list[TrialSpec]:
    listed = []
    for compiler in ("none", "inductor"):
        for activations in ("keep", "checkpoint"):
            for size in (2, 8, 32):
                choices = {"compile": compiler, "activations": activations, "micro_batch": size}
                listed.append(make_spec({**choices, "accumulation": 1}))
    return listed


def read(sizes: tuple[int, ...]) -> PredictedMemory:
    """Predicted for the eager trials that keep all, of these sizes."""
    predicted = {}
    for trial in trials():
        choices = (trial.choices["compile"], trial.choices["activations"])
        if choices == ("none", "keep") and trial.micro_batch in sizes:
            predicted[trial.trial_id] = (10 + trial.micro_batch) * GIB
    memory = PredictedMemory(candidates_of(trials()), predicted, PRIORS)
    assert memory.read() == (len(sizes) > 1)
    return memory


def test_predicted_memory_of_one_size_says_nothing_of_larger_ones() -> None:
    memory = read((2,))
    assert not memory.borrows.any()


def test_predicted_memory_of_other_techniques_is_borrowed_with_their_effect() -> None:
    memory = read((2, 32))
    gib = np.exp(memory.log_bytes) / GIB
    assert gib[:3] == pytest.approx([12, 18, 42])
    # Of 10 GiB and 1 GiB per sample, the effect on all memory becomes twice that on the samples.
    assert gib[6:9] == pytest.approx(10 + math.exp(-0.4) * (gib[:3] - 10))
    assert memory.borrows.tolist() == [False] * 3 + [True] * 9


def test_predicted_memory_errs_together_where_the_same_technique_changes() -> None:
    memory = read((2, 32))
    every = np.arange(12)
    covariance = memory.borrowed_covariance(every, every)
    assert covariance[0].max() == 0
    # Compiled trials share the compiler's error, whatever they keep. Their memory errs only as far
    # as it is that of samples.
    weights = memory.sample_weights
    assert covariance[6, 9] == pytest.approx(0.3**2 * weights[6] * weights[9])
    assert weights[6] < weights[7] < weights[8] < 2
    assert covariance[3, 6] == 0
    assert np.diag(covariance) == pytest.approx(memory.borrowed_variances())
    # Of the memory of samples, two changes err more than one.
    assert covariance[9, 9] / weights[9] ** 2 > covariance[6, 6] / weights[6] ** 2
