"""Values that no trial can run with are named before a trial runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.spec import DatasetFile, DataSpec
from jobs.spec.limits import MAX_SEED, MAX_TIMEOUT_SECONDS, problem_of
from tests.conftest import build_tiny_spec


@pytest.mark.parametrize(
    "measure", [{"seed": 0}, {"seed": MAX_SEED}, {"timeout_seconds": MAX_TIMEOUT_SECONDS}]
)
def test_problem_of_what_can_run_is_empty(measure: dict[str, Any]) -> None:
    assert problem_of(build_tiny_spec(**measure)) == ""


@pytest.mark.parametrize("seed", [-1, 2**32, 2**80])
def test_problem_of_another_seed_names_the_largest(seed: int) -> None:
    problem = problem_of(build_tiny_spec(seed=seed))
    assert problem.startswith(f"measure.seed is {seed}: it must be from 0 to 4294967295, the")


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e12, float("inf"), float("nan")])
def test_problem_of_a_timeout_that_no_clock_holds(seconds: float) -> None:
    problem = problem_of(build_tiny_spec(timeout_seconds=seconds))
    assert problem.endswith("it must be above zero and at most a year")


def test_problem_of_an_unknown_data_format_names_the_known() -> None:
    kind: Any = "evil/loader.py"
    spec = replace(build_tiny_spec(), data=DataSpec(file=DatasetFile(path="x", format=kind)))
    assert problem_of(spec) == (
        "data.file.format is 'evil/loader.py': it must be one of parquet, json, csv, arrow, disk, "
        "imagefolder"
    )
