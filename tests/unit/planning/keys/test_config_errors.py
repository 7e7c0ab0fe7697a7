"""What is wrong with the value of a key, in words, and what its neighbours are."""

import os

import pytest

from orchestrator.planning.config import ConfigError
from orchestrator.planning.keys.schema import keys_schema
from orchestrator.planning.keys.search_options import SEARCH_KINDS
from tests.support.commands import ROOT, python

WRONG_VALUES = ROOT / "tests/golden/wrong_values.txt"
VALUE = {"model": {"task": "causal-lm", "architecture": "gpt2"}}


@pytest.mark.parametrize(
    "line", [line for line in WRONG_VALUES.read_text().splitlines() if line[0] != "#"]
)
def test_wrong_value_is_named_with_its_key_and_what_to_write(load, line):
    text, _, message = line.partition(" => ")
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", SEARCH_KINDS)
def test_search_by_name_has_every_default(load, kind):
    assert (
        load(f"search: {kind}").search
        == SEARCH_KINDS[kind]()
        == load(f"search: {{kind: {kind}}}").search
    )


def test_options_that_are_given_replace_the_defaults(load):
    options = load("search: {kind: frontier, tolerance: 0.1}").search.options
    assert options == {"tolerance": 0.1, "audit_fraction": 0.03, "seed": 0}
    assert load("loggers: [mlflow, wandb]").loggers == {"mlflow": {}, "wandb": {}}
    given = "loggers: {tensorboard: null, wandb: {project: bert}}"
    assert load(given).loggers == {"tensorboard": {}, "wandb": {"project": "bert"}}


@pytest.mark.parametrize("before", ["", "logfire"])
def test_typed_asks_no_package_for_plugins_and_leaves_the_environment_as_it_is(before):
    # In a process of its own, because pydantic asks only once.
    program = f"""
import importlib.metadata, os
def refuse(**parameters):
    raise SystemExit("packages were searched for plugins")
importlib.metadata.entry_points = refuse
from orchestrator.planning.keys.config_errors import typed
typed({VALUE})
print(os.environ["PYDANTIC_DISABLE_PLUGINS"])
"""
    done = python("-c", program, env={**os.environ, "PYDANTIC_DISABLE_PLUGINS": before})
    assert (done.stdout, done.stderr) == (f"{before}\n", "")


def test_every_key_of_every_section_has_a_description_in_the_schema():
    schema = keys_schema()
    for section in (schema, *schema["$defs"].values()):
        for key, described in section["properties"].items():
            # A logger's description is that of its own section.
            is_described = "description" in described or "$ref" in described["anyOf"][0]
            assert is_described, (section["title"], key)
