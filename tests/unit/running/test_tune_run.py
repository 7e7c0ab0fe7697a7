"""What ``tune`` leaves out because this machine surely lacks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.node import nvml
from orchestrator.planning.config import load_config
from orchestrator.planning.tune_space.space import Goal
from orchestrator.running.tune_run import space_of


@pytest.mark.parametrize(
    ("capability", "is_remote", "is_tried"),
    [((7, 0), False, False), ((8, 0), False, True), ((7, 0), True, True)],
)
def test_precision_that_no_gpu_here_supports_is_not_tried(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capability: tuple[int, int],
    is_remote: bool,
    is_tried: bool,
) -> None:
    monkeypatch.setattr(nvml, "visible_uuids", lambda: ["GPU-1"])
    monkeypatch.setattr(nvml, "compute_capability", lambda uuid: capability)
    path = tmp_path / "own.yaml"
    path.write_text("model: {task: causal-lm, architecture: llama}\n")
    space = space_of(load_config(path), Goal(), 60.0, has_gpu=True, is_remote=is_remote)
    for precision in ("bf16", "tf32"):
        assert (precision in space.config.axes["precision"]) == is_tried
    assert "fp16" in space.config.axes["precision"]
