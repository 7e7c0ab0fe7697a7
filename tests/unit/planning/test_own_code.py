"""A config that names the user's own code: refused without the word, checked before it runs."""

import sys
from pathlib import Path

import pytest

from jobs.library_facts.__main__ import answers
from jobs.record import Outcome
from jobs.spec import TrialSpec, from_json, to_json
from orchestrator import predict, sweep
from orchestrator.planning import library_facts
from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.plan import plan
from tests.support.config_files import MODEL

CONFIG = (
    MODEL + "own_code: {trainer: my_own_pack.train:Mine, callbacks: [my_own_pack.train:Count]}\n"
)
SOURCE = "raise SystemExit('imported')\nclass Mine: ...\nclass Count: ...\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    package = tmp_path / "my_own_pack"
    package.mkdir()
    (package / "train.py").write_text(SOURCE)
    path = tmp_path / "sweep.yaml"
    path.write_text(CONFIG)
    return path


def test_dry_run_and_predict_need_the_word_and_import_nothing(config, capsys, monkeypatch):
    monkeypatch.setattr(library_facts, "_asked", answers)
    assert sweep.main([str(config), "--dry-run"]) == 2
    assert "--allow-own-code" in capsys.readouterr().err
    assert sweep.main([str(config), "--dry-run", "--allow-own-code"]) == 0
    assert predict.main([str(config)]) == 2
    assert not any(name.startswith("my_own_pack") for name in sys.modules)


def test_allowed_own_code_is_in_every_trial_and_in_what_a_run_keeps(config):
    loaded = load_config(config, allow_own_code=True)
    kept = loaded.to_json()["own_code"]
    assert kept["trainer"] == "my_own_pack.train:Mine"
    assert kept["callbacks"] == ["my_own_pack.train:Count"]
    (trial,) = plan(loaded).trials
    assert trial.own_code == loaded.own_code
    assert from_json(TrialSpec, to_json(trial)) == trial


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{trainer: my_own_pack.train.Mine}", "is not of the form module:object"),
        ("{trainer: nowhere:Mine}", "own_code.trainer: nowhere:Mine: there is no module nowhere"),
        ("{callbacks: [my_own_pack.train:No]}", r"callbacks\[0\].*train.py defines no No"),
        ("{}", "names nothing"),
        ("{trainer: a:B, entry: a:c}", "contradicts entry"),
    ],
)
def test_mistake_in_own_code_is_a_sentence(text, sentence, config):
    config.write_text(f"{MODEL}own_code: {text}\n")
    with pytest.raises(ConfigError, match=sentence):
        load_config(config, allow_own_code=True)


def test_own_code_with_the_accelerate_loop_is_ruled_out(config):
    config.write_text(CONFIG + "axes: {loop: [trainer, accelerate]}\n")
    planned = plan(load_config(config, allow_own_code=True))
    assert [trial.choices["loop"] for trial in planned.trials] == ["trainer"]
    (record,) = planned.ruled_out
    assert record.outcome is Outcome.UNSUPPORTED
    assert record.rule == "own_code_needs_trainer"
