"""A configuration with a secret is refused, because records and scripts hold its values."""

import json

import pytest

from orchestrator.planning.config import ConfigError
from tests.support.config_files import config_of

SECRET = "hunter2-planted"
MODEL = {"task": "sequence-classification", "name_or_path": "some/model"}


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("token", {"token": SECRET}),
        ("api_key", {"api_key": SECRET}),
        ("hub.dbPassword", {"hub": {"dbPassword": SECRET}}),
        ("parts[0].secret.deep", {"parts": [{"secret": {"deep": SECRET}}]}),
        ("revision", {"revision": "hf_" + "a1" * 17}),
        ("proxies.https", {"proxies": {"https": f"https://me:{SECRET}@proxy.example"}}),
        ("password", {"password": 12345}),
    ],
)
def test_secret_in_model_config_is_refused_with_its_key(key, config, tmp_path):
    with pytest.raises(ConfigError) as error:
        config_of(tmp_path, model={**MODEL, "config": config})
    # Some of these keys are refused whatever their value is.
    problem = next(p for p in error.value.problems if "secret" in p.message)
    assert problem.key == f"model.config.{key}"
    assert "looks like a secret" in problem.message
    assert SECRET not in str(error.value)


def test_secret_in_a_file_of_arguments_is_refused(tmp_path):
    (tmp_path / "arguments.json").write_text(json.dumps({"optim_args": f"api_key={SECRET}"}))
    with pytest.raises(ConfigError, match="optim_args: looks like a secret") as error:
        config_of(tmp_path, training_arguments="arguments.json")
    assert SECRET not in str(error.value)


def test_secret_in_a_loggers_settings_is_allowed(tmp_path):
    loggers = {"wandb": {"settings": {"api_key": SECRET}}}
    assert config_of(tmp_path, loggers=loggers).loggers


@pytest.mark.parametrize(
    "config",
    [
        {"pad_token_id": 0, "num_key_value_heads": 2},
        {"pad_token": "!", "tokenizer_class": "BertTokenizer"},
        {"hidden_act": "gelu", "id2label": {"0": "token", "1": "key"}},
    ],
)
def test_harmless_model_config_is_accepted(config, tmp_path):
    assert config_of(tmp_path, model={**MODEL, "config": config}).model.config == config
