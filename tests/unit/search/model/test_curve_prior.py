"""Prior means and covariances of curves."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from jobs.spec import Choice
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.curve_prior import CurvePrior, Part
from orchestrator.search.model.effects.technique_priors import TechniquePriors, shipped_priors
from tests.benchmarks.grids import make_spec

VALUES: Mapping[str, Sequence[Choice]] = {
    "activations": ("keep", "checkpoint"),
    "kernels": ("none", "liger"),
    "loss": ("plain", "chunked"),
}


@pytest.mark.parametrize("part", [Part.TIME, Part.MEMORY_SLOPE])
@pytest.mark.parametrize("axis_count", [0, 1, 2, 3])
def test_variances_are_the_diagonal_of_the_covariance(axis_count, part):
    specs = []
    for number in range(2**axis_count):
        choices: dict[str, Choice] = {"micro_batch": 8, "accumulation": 1}
        for bit, axis in enumerate(list(VALUES)[:axis_count]):
            choices[axis] = VALUES[axis][number >> bit & 1]
        specs.append(make_spec(choices))
    prior = CurvePrior(candidates_of(specs), TechniquePriors(), part)
    curves = np.arange(prior.count)
    of_pairs = prior.covariance(curves[:, None], curves)
    assert prior.covariance(curves, curves) == pytest.approx(np.diag(of_pairs))


def test_similar_values_never_share_less_than_nothing():
    specs = []
    for number in range(3):
        budget = f"budget_0.{number + 1}"
        choices: dict[str, Choice] = {"activations": budget, "micro_batch": 8, "accumulation": 1}
        specs.append(make_spec(choices))
    prior = CurvePrior(candidates_of(specs), shipped_priors())
    curves = np.arange(prior.count)
    assert (prior.covariance(curves[:, None], curves) >= 0).all()


def test_new_choices_are_those_that_no_known_curve_has():
    specs = []
    for activations in VALUES["activations"]:
        for kernels in VALUES["kernels"]:
            choices: dict[str, Choice] = {"activations": activations, "kernels": kernels}
            specs.append(make_spec({**choices, "micro_batch": 8, "accumulation": 1}))
    prior = CurvePrior(candidates_of(specs), TechniquePriors())
    plain, liger, checkpoint, both = range(4)
    # Checkpointing is new, and both curves with it have all that is new.
    assert prior.new_choices(checkpoint, np.array([plain, liger])).tolist() == [0, 0, 1, 1]
    # Both techniques are new, and those with one of them have half of it.
    assert prior.new_choices(both, np.array([plain])).tolist() == [0, 0.5, 0.5, 1]
    # Only the combination is new.
    assert prior.new_choices(both, np.array([liger, checkpoint])).tolist() == [0, 0, 0, 1]
