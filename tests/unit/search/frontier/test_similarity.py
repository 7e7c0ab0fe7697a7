"""The kernels: how much candidates share, by their choices."""

from __future__ import annotations

import pytest

from orchestrator.search.frontier.similarity import (
    misfit_kernel,
    shared_choices,
    similarity_groups,
    with_no_more_host_work,
)
from orchestrator.search.model.candidates import candidates_of
from tests.benchmarks.grids import make_spec

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
CANDIDATES = candidates_of(
    make_spec({"precision": precision, "micro_batch": size})
    for size in (4, 8)
    for precision in PRECISIONS
)


def test_misfit_kernel_falls_with_octaves_and_choices() -> None:
    kernel = misfit_kernel(CANDIDATES, 0.95)
    assert kernel.diagonal() == pytest.approx(1.0)
    assert kernel[0, 1] == pytest.approx(0.95)
    assert kernel[0, 4] == pytest.approx(0.6065, abs=1e-4)
    assert kernel[0, 5] == pytest.approx(kernel[0, 1] * kernel[0, 4])


def test_shared_choices_count_similar_values_almost_as_equal() -> None:
    shared = shared_choices([candidate.curve for candidate in CANDIDATES[:4]], 0.98)[:, :, 0]
    bf16, fp16 = PRECISIONS.index("bf16"), PRECISIONS.index("fp16")
    assert shared.diagonal() == pytest.approx(1.0)
    assert shared[bf16, fp16] == 0.98
    assert shared[bf16, 0] == shared[fp16, 1] == 0.0


def test_similarity_groups_join_similar_values_of_equal_batch() -> None:
    groups = similarity_groups(CANDIDATES)
    numbers = [groups[candidate] for candidate in CANDIDATES]
    assert numbers == [0, 1, 2, 2, 3, 4, 5, 5]


def test_host_work_of_a_precision_includes_that_of_simpler_ones() -> None:
    asking_no_more = with_no_more_host_work(CANDIDATES)
    names = {}
    for candidate in CANDIDATES[:4]:
        others = asking_no_more[candidate]
        assert all(other.micro_batch == candidate.micro_batch for other in others)
        chosen = {str(other.trials[0].choices["precision"]) for other in others}
        names[candidate.trials[0].choices["precision"]] = chosen
    assert names == {
        "fp32": {"tf32"},
        "tf32": {"fp32"},
        "bf16": {"fp32", "tf32"},
        "fp16": {"fp32", "tf32", "bf16"},
    }
