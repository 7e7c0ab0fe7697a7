"""The config's choice of loggers."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.planning.loggers import LOGGERS, LoggerError, read_loggers, refuse_missing


def test_read_loggers_takes_names_or_arguments() -> None:
    assert read_loggers(["mlflow", "wandb"]) == {"mlflow": {}, "wandb": {}}
    given = {"tensorboard": None, "wandb": {"project": "bert"}}
    assert read_loggers(given) == {"tensorboard": {}, "wandb": {"project": "bert"}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("mlflow", "must be a list of loggers"),
        (["ml_flow"], 'did you mean "mlflow"?'),
        ({"wandb": "bert"}, "must be a mapping of arguments"),
        ({"wandb": {"projekt": "bert"}}, 'did you mean "project"?'),
        ({"tensorboard": {"logdir": "x"}}, "it takes no arguments"),
        ({"mlflow": {"tracking_uri": "https://me:key@host"}}, "must hold no credentials"),
        ({"wandb": {"settings": {"base_url": "https://key@host"}}}, "must hold no credentials"),
    ],
)
def test_read_loggers_refuses_what_no_row_has(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        read_loggers(value)


def test_refuse_missing_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(LoggerError, match="loggers: wandb needs the package wandb: pip install"):
        refuse_missing(["wandb"])


@pytest.mark.parametrize("name", LOGGERS)
def test_logger_name_argument_is_one_of_its_arguments(name: str) -> None:
    row = LOGGERS[name]
    assert row.name_argument in ("", *row.arguments)
