"""The verb ``predict``, as far as no model is traced."""

import pytest

from orchestrator import predict
from tests.support.commands import ROOT


@pytest.mark.parametrize("wrong", [("--gpu", "h2000"), ("--trial", "zzz")])
def test_predict_unknown_name_ends_with_status_2(wrong, capsys):
    assert predict.main([str(ROOT / "configs/vit.yaml"), *wrong]) == 2
    assert wrong[1] in capsys.readouterr().err


@pytest.mark.slow
def test_predict_of_nothing_but_unbuildable_trials_ends_with_status_1(tmp_path, capsys):
    path = tmp_path / "sweep.yaml"
    model = "{task: masked-lm, architecture: bert, config: {hidden_act: gelluu}}"
    path.write_text(f"model: {model}\naxes: {{micro_batch: [1, 2]}}\n")
    assert predict.main([str(path)]) == 1
    assert "unknown: KeyError: 'gelluu'" in capsys.readouterr().out
