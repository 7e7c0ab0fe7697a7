"""Unlike and unfit GPUs on a real Ray of several nodes."""

import os
import tempfile
from typing import Any

import pytest

from jobs.node.environment import cores
from tests.support import light_parent
from tests.support.commands import printed_json, python

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the sweep printed."""
    folder = tmp_path_factory.mktemp("unlike")
    # A short path, and no other Ray to be joined.
    with tempfile.TemporaryDirectory(prefix="ray-") as ray_folder:
        variables = {**light_parent.variables(0.3), "RAY_TMPDIR": ray_folder}
        module = ["-m", "tests.support.two_model_cluster"]
        environment = {**os.environ, **variables, "OPENBLAS_NUM_THREADS": "2"}
        done = python(*module, folder, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return printed_json(done.stdout)


def test_every_trial_runs_once_on_its_model_and_late_slots_run_some(swept):
    """By itself, Ray Tune never uses a slot that starts late beside busy ones."""
    assert swept["ran"] == [
        ["large", "large", "0", "ok"],
        ["large", "large", "2", "ok"],
        ["small", "second small", "0", "ok"],
        ["small", "small", "0", "ok"],
    ]
    assert swept["joined slots"] == {"large": 2, "small": 2}
    assert swept["records"] == swept["ended"]


def test_slow_gpu_gets_no_trial_and_is_named(swept):
    assert swept["slots"] == {"large": 2, "small": 1}
    (note,) = swept["notes"]
    assert note.startswith("large 1 on ")
    assert "was set aside: it is 20% slower than the median of its model" in note


def test_model_without_a_fit_gpu_is_measured_on_with_a_note(swept):
    assert swept["hot slots"] == {"large": 3, "small": 1}
    assert len(swept["hot"]) == 3
    for note in swept["hot"]:
        assert "was measured on, because no other GPU of its model is fit" in note


def test_driver_computes_on_one_core_while_trials_run_at_the_usual_priority(swept):
    assert swept["threads meanwhile"] == [1]
    assert swept["threads after"] == min(2, cores())
    assert swept["niceness"] == [os.nice(0)]
