"""The text and the JSON of ``--dry-run``."""

from pathlib import Path

import pytest

from orchestrator.planning.plan import plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.reporting.verbs.dry_run import describe, to_json
from tests.support.config_files import config_of
from tests.support.golden import assert_golden, without_ids


@pytest.fixture
def config(tmp_path: Path) -> SweepConfig:
    """Four configurations, of which two have no whole accumulation."""
    axes = {"micro_batch": [2, 3], "effective_batch": 4, "precision": ["bf16", "fp32"]}
    return config_of(tmp_path, axes=axes, budgets=["16GiB"])


def test_describe_is_the_recorded_text(config, tmp_path):
    other = config_of(
        tmp_path,
        axes={"weight_decay": [number / 100 for number in range(15)]},
        data={"synthetic": {"lengths": {"mean": 100}}},
        measure={"repeats": 2, "steps": "epoch"},
        follow_up={"profile": "none"},
        loggers=["tensorboard"],
    )
    nothing = config_of(tmp_path, axes={"base": "bnb_4bit", "activations": "checkpoint"})
    idle = config_of(tmp_path, resources={"gpus_per_trial": 2})
    texts = [describe(plan(own), own) for own in (config, other, nothing, idle)]
    assert_golden("description.txt", without_ids("\n\n".join(texts)))


def test_to_json_has_every_trial_with_its_label(config):
    planned = plan(config)
    content = to_json(planned, config)
    trial_ids = [trial["trial_id"] for trial in content["trials"]]
    labels = [trial["label"] for trial in content["trials"]]
    assert trial_ids == [trial.trial_id for trial in planned.trials]
    assert labels == ["batch 2×2 · bf16", "batch 2×2 · fp32"]
    assert {row["rule"] for row in content["ruled_out"]} == {"whole_accumulation"}
