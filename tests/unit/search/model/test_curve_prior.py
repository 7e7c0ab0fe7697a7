"""Prior means and covariances of curves."""

import numpy as np
import pytest

from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.curve_prior import CurvePrior
from orchestrator.search.model.effects.technique_priors import TechniquePriors, shipped_priors
from tests.benchmarks.grids import grid_of

VALUES = {
    "activations": ("keep", "checkpoint"),
    "kernels": ("none", "liger"),
    "compile": ("none", "inductor"),
}


@pytest.mark.parametrize("is_time", [True, False])
@pytest.mark.parametrize("axis_count", [0, 1, 2, 3])
def test_variances_are_the_diagonal_of_the_covariance(axis_count, is_time):
    axes = dict(list(VALUES.items())[:axis_count])
    prior = CurvePrior(candidates_of(grid_of(**axes)), TechniquePriors(), is_time=is_time)
    curves = np.arange(prior.count)
    of_pairs = np.diagonal(prior.covariance(curves[:, None], curves), axis1=1, axis2=2)
    assert prior.covariance(curves, curves) == pytest.approx(of_pairs)


def test_similar_values_never_share_less_than_nothing():
    specs = grid_of(activations=("budget_0.1", "budget_0.2", "budget_0.3"))
    prior = CurvePrior(candidates_of(specs), shipped_priors(), is_time=True)
    curves = np.arange(prior.count)
    assert (prior.covariance(curves[:, None], curves) >= 0).all()


def test_two_techniques_that_fuse_the_same_operations_gain_less_than_both():
    specs = grid_of(kernels=VALUES["kernels"], compile=VALUES["compile"])
    prior = CurvePrior(candidates_of(specs), shipped_priors(), is_time=True)
    ((none, compiled, liger, both),) = prior.log_effects
    assert none == 0
    assert both == pytest.approx(compiled + liger + 0.15)


def test_new_choices_are_those_that_no_known_curve_has():
    specs = grid_of(activations=VALUES["activations"], kernels=VALUES["kernels"])
    prior = CurvePrior(candidates_of(specs), TechniquePriors(), is_time=True)
    plain, liger, checkpoint, both = range(4)
    # Checkpointing is new, and both curves with it have all that is new.
    assert prior.new_choices(checkpoint, np.array([plain, liger])).tolist() == [0, 0, 1, 1]
    # Both techniques are new, and those with one of them have half of it.
    assert prior.new_choices(both, np.array([plain])).tolist() == [0, 0.5, 0.5, 1]
    # Only the combination is new.
    assert prior.new_choices(both, np.array([liger, checkpoint])).tolist() == [0, 0, 0, 1]
