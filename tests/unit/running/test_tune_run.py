"""What ``tune`` leaves out because this machine surely lacks it."""

from typing import Any

import pytest

from jobs.node import nvml
from jobs.techniques import AXES
from orchestrator.planning.tune_space.space import Goal
from orchestrator.running import tune_run
from tests.support.config_files import config_of


class SpaceAskedForError(Exception):
    """Carries what the space would leave out."""


@pytest.mark.parametrize(
    ("capability", "is_remote", "left_out"),
    [((7, 0), False, {"bf16", "tf32"}), ((8, 0), False, set()), ((7, 0), True, set())],
)
def test_precision_that_no_gpu_here_supports_is_not_tried(
    monkeypatch, tmp_path, capability, is_remote, left_out
):
    def tune_space(*_: Any, is_missing: Any, **__: Any) -> None:
        raise SpaceAskedForError(is_missing)

    monkeypatch.setattr(nvml, "visible_uuids", lambda: ["GPU-1"])
    monkeypatch.setattr(nvml, "compute_capability", lambda uuid: capability)
    monkeypatch.setattr(tune_run, "tune_space", tune_space)
    with pytest.raises(SpaceAskedForError) as asked:
        tune_run.space_of(config_of(tmp_path), Goal(), 60.0, has_gpu=True, is_remote=is_remote)
    (is_missing,) = asked.value.args
    precisions = AXES["precision"].variants
    tried = ("bf16", "tf32", "fp16")
    assert {name for name in tried if any(map(is_missing, precisions[name].requires))} == left_out
