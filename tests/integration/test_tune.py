"""The tune verb through a real Ray and a real Trainer, on a tiny model."""

import json
import math
from pathlib import Path

import pytest

from jobs.record import Outcome
from orchestrator import tune
from orchestrator.search.best.stopping_rule import StoppingRule
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import TINY_CONFIG

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_with_libraries")]

CONFIG = (
    TINY_CONFIG
    + """\
training_arguments: {per_device_train_batch_size: 2}
measure: {timeout: 10m}
"""
)


def test_tune_measures_few_of_many_and_exports_its_pick(tmp_path, capsys, monkeypatch):
    # On a slow machine, too, the few seconds are enough for the user's own arguments.
    monkeypatch.setattr(StoppingRule, "first_seconds", lambda *_: math.inf)
    monkeypatch.setattr(
        StoppingRule, "allowed_seconds", lambda _, expected, __: expected + math.inf
    )
    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG)
    folder = tmp_path / "run"
    arguments = [str(config), "--output", str(folder), "--gpu-minutes", "0.05", "--json"]
    arguments += ["--memory", "1GiB"]
    assert tune.main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    records = RunFolder(folder).records()
    (result,) = document["results"]
    search = result["search"]
    # A record for each measured trial, and none for the rest of the space.
    assert search["considered"] > 500
    assert 1 <= len(records) < 500
    searched = [own for own in records.values() if own.spec.follow_up is None]
    measured = [own for own in searched if own.outcome is Outcome.OK]
    assert search["measured"] == len(measured)
    # The user's own arguments are the baseline, and the pick is at least as fast.
    own = records[result["user_configuration"]["trial_id"]]
    assert own.spec.micro_batch == 2
    assert result["gain"] >= 1
    assert (Path(result["files"]) / "train.py").exists()

    # Nothing that was measured is measured again; a trial that had not started may run now.
    folder_of_records = folder / "records"
    written = {}
    for record in measured:
        path = folder_of_records / f"{record.trial_id}.json"
        written[path] = path.stat().st_mtime_ns
    assert tune.main([*arguments, "--resume"]) == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written
