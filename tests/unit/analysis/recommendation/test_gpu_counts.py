"""One GPU or two: the best on each number, and offers whose GPUs share a batch."""

import pytest

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.recommendation import Constraints, Rankings
from orchestrator.analysis.recommendation.gpu_counts import gpu_counts
from orchestrator.analysis.recommendation.interpolation import candidates_between
from orchestrator.analysis.recommendation.offers import candidates
from tests.support.configurations import make_configuration

KNOWN = {"parameters_trainable": 10, "parameter_dtypes": "float32"}


def make(gpus: int, memory: int, speed: float, micro_batch: int = 4) -> Configuration:
    batch = {"micro_batch": micro_batch, "effective_batch": micro_batch * gpus}
    more = {"world_size": None if gpus == 1 else gpus, "effective_batch": batch["effective_batch"]}
    return make_configuration(memory, speed, micro_batch=micro_batch, **{**KNOWN, **more})


def test_efficiency_compares_with_the_best_on_one_gpu_within_the_memory():
    run = [make(1, 100, 40.0), make(1, 50, 30.0), make(2, 50, 54.0), make(4, 60, 90.0)]
    within = {own.gpus: own for own in gpu_counts(Rankings(run), Constraints(memory_bytes=60))}
    assert [own.best.configuration.samples_per_second for own in within.values()] == [30, 54, 90]
    assert [own.efficiency for own in within.values()] == [1.0, 0.9, 0.75]
    assert within[4].samples_per_second_per_gpu == 22.5
    # With more memory, one GPU is faster, so that two are worth less.
    more = gpu_counts(Rankings(run), Constraints())
    assert more[1].efficiency == pytest.approx(54 / 80)


def test_what_fits_only_on_several_gpus_has_no_efficiency():
    run = [make(1, 100, 40.0), make(2, 50, 54.0)]
    (own,) = gpu_counts(Rankings(run), Constraints(memory_bytes=60))
    assert (own.gpus, own.efficiency) == (2, None)


def test_run_on_one_number_of_gpus_has_no_comparison():
    assert not gpu_counts(Rankings([make(2, 1, 1.0), make(2, 2, 2.0, 8)]), Constraints())


@pytest.mark.parametrize(("gpus", "accumulation"), [(1, 4), (2, 2), (4, 1)])
def test_effective_batch_counts_all_gpus(gpus, accumulation):
    (offer,) = candidates([make(gpus, 100, 40.0)], 16)
    assert (offer.accumulation, offer.effective_batch) == (accumulation, 16)


def test_micro_batch_between_two_divides_the_batch_of_all_gpus():
    def sizes(gpus: int) -> list[tuple[int, int]]:
        run = [make(gpus, 100, 40.0, 4), make(gpus, 200, 50.0, 16)]
        return [(own.micro_batch, own.accumulation) for own in candidates_between(run, 40)]

    assert sizes(1) == [(5, 8), (8, 5), (10, 4)]
    assert sizes(4) == [(5, 2), (10, 1)]


def test_dollars_count_every_gpu():
    dollars = OBJECTIVES["dollars_per_million"]
    one, two = (dollars.of(make(gpus, 1, 100.0), 3.6) for gpus in (1, 2))
    assert (one, two) == (10.0, 20.0)
