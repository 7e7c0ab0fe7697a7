"""compare: exit statuses for CI, and runs that cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.record import TrialRecord
from orchestrator import compare
from tests.support.records import GPU_BOUND, H200, make_record, write_run


def steady(factor: float = 1.0) -> list[TrialRecord]:
    """Three records with narrow intervals, their speed scaled."""
    return [
        make_record(micro_batch=2**n, speed=0.1 * factor, measurements=GPU_BOUND) for n in range(3)
    ]


def written(folder: Path, *runs: list[TrialRecord], **about: Any) -> list[str]:
    return [
        str(write_run(folder / str(place), records, **about)) for place, records in enumerate(runs)
    ]


def test_compare_fails_over_the_tolerance_only(tmp_path: Path) -> None:
    runs = written(tmp_path, steady(), steady(0.95))
    statuses = [compare.main([*runs, "--fail-over", share]) for share in ("3%", "0.04", "10%")]
    assert statuses == [compare.EXIT_WORSE, compare.EXIT_WORSE, 0]
    assert compare.main(runs) == 0


def test_compare_with_a_wrong_call_is_a_usage_error(tmp_path: Path) -> None:
    (run,) = written(tmp_path, steady())
    assert compare.main([run, str(tmp_path / "nowhere")]) == 2
    with pytest.raises(SystemExit, match="2"):
        compare.main([run, run, "--fail-over", "three"])


@pytest.mark.parametrize(
    ("environment", "config"),
    [({**H200, "gpu_model": "NVIDIA A100"}, {}), (H200, {"model": {"architecture": "llama"}})],
    ids=["another GPU", "another model"],
)
def test_compare_refuses_different_hardware_unless_asked(
    environment: Mapping[str, Any],
    config: Mapping[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = write_run(tmp_path / "before", steady())
    after = [replace(record, environment=environment) for record in steady()]
    runs = [str(before), str(write_run(tmp_path / "after", after, config=config))]
    assert compare.main(runs) == compare.EXIT_DIFFERENT_HARDWARE
    assert "--different-hardware compares them" in capsys.readouterr().err
    assert compare.main([*runs, "--different-hardware"]) == 0


def test_compare_prints_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([*written(tmp_path, steady(), steady(0.9)), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### synthetic (NVIDIA H200) → synthetic")
