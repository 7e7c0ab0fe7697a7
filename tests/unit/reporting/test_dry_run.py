"""The text and the JSON of ``--dry-run``."""

import os
import re
from pathlib import Path

import pytest

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.reporting.dry_run import describe, to_json

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/description.txt"


@pytest.fixture
def config(tmp_path: Path) -> SweepConfig:
    """Four configurations, of which two have no whole accumulation."""
    path = tmp_path / "small.yaml"
    path.write_text(
        "model: {task: causal-lm, architecture: llama}\n"
        "axes: {micro_batch: [2, 3], effective_batch: 4, precision: [bf16, fp32]}\n"
        "budgets: [16GiB]\n"
    )
    return load_config(path)


def test_describe_is_the_recorded_text(config):
    text = re.sub(r"\b[0-9a-f]{12}\b", "<trial id>", describe(plan(config), config))
    if "RECORD_GOLDEN" in os.environ:
        GOLDEN.write_text(f"{text}\n")
    assert f"{text}\n" == GOLDEN.read_text(), "if that is better: RECORD_GOLDEN=1 pytest"


def test_to_json_has_every_trial_with_its_label(config):
    planned = plan(config)
    content = to_json(planned, config)
    trial_ids = [trial["trial_id"] for trial in content["trials"]]
    labels = [trial["label"] for trial in content["trials"]]
    assert trial_ids == [trial.trial_id for trial in planned.trials]
    assert labels == ["batch 2×2 · bf16", "batch 2×2 · fp32"]
    assert {row["rule"] for row in content["ruled_out"]} == {"whole_accumulation"}
