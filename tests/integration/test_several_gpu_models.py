"""Unlike and unfit GPUs on a real Ray of several nodes."""

import json
import os
import tempfile
from typing import Any

import pytest

from tests.support import light_parent
from tests.support.commands import printed_json, python
from tests.support.two_model_cluster import GPU, NODE, TRIALS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def swept(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """What the sweep printed, and what each of its trials noted of where it ran."""
    folder = tmp_path_factory.mktemp("unlike")
    # A short path, and no other Ray to be joined.
    with tempfile.TemporaryDirectory(prefix="ray-") as ray_folder:
        variables = {**light_parent.variables(), "RAY_TMPDIR": ray_folder}
        module = ["-m", "tests.support.two_model_cluster"]
        done = python(*module, folder, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr[-3000:]
    notes = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    return printed_json(done.stdout), notes


def test_every_trial_runs_once_on_each_model_and_on_its_nodes(swept):
    answer, notes = swept
    assert answer["outcomes"] == [["large", "ok", ""]] * TRIALS + [["small", "ok", ""]] * TRIALS
    models = ("large", "small")
    assert {name: note[NODE] for name, note in notes.items()} == {
        f"{model}-{number}": model for model in models for number in range(TRIALS)
    }


def test_slow_gpu_gets_no_trial_and_is_named(swept):
    answer, notes = swept
    assert answer["slots"] == {"large": 1, "small": 1}
    (note,) = answer["notes"]
    assert note.startswith("large 1 on ")
    assert "was set aside: it is 11% slower than the median of its model" in note
    assert {note[GPU] for name, note in notes.items() if name.startswith("large")} == {"0"}


def test_model_without_a_fit_gpu_is_measured_on_with_a_note(swept):
    answer, _ = swept
    assert answer["hot slots"] == {"large": 2, "small": 1}
    assert len(answer["hot"]) == 2
    for note in answer["hot"]:
        assert "was measured on, because no other GPU of its model is fit" in note


def test_known_model_that_joins_is_used(swept):
    joined = swept[0]["joined"]
    assert joined["ran"] == [["large", "large"], ["small", "second small"], ["small", "small"]]
    assert joined["slots"] == {"large": 2, "small": 2}
