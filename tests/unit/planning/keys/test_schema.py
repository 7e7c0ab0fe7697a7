"""The JSON schema that editors check configs with."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from orchestrator.planning.keys.schema import json_schema
from tests.support.commands import ROOT
from tests.support.config_files import SHIPPED

BROKEN = sorted((ROOT / "tests/golden/broken_configs").glob("*.yaml"))
BEYOND_A_SCHEMA = (
    "04_",  # a key given twice
    "11_",  # the installed transformers' architectures
    "12_",  # its arguments
    "19_",  # an argument and an axis
    "21_",
    "51_",
    "29_",  # the suffix of a file
    "33_",  # other files
    "34_",
    "35_",
    "37_",
    "42_",
    "48_",  # the text of an argument
    "50_",  # the keys of the installed architectures
)
"""Broken files whose mistake an editor cannot see."""


def _is_accepted(path: Path) -> bool:
    try:
        value = yaml.safe_load(path.read_text())
        jsonschema.Draft202012Validator(json_schema()).validate(value)
    except (yaml.YAMLError, RecursionError, jsonschema.ValidationError):
        return False
    return True


def test_schema_committed_file_is_current():
    committed = json.loads((ROOT / "configs/schema.json").read_text())
    assert committed == json_schema(), "make schema"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_schema_accepts_shipped_config(path):
    assert _is_accepted(path)


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_schema_refuses_broken_config_if_it_can_see_the_mistake(path):
    assert _is_accepted(path) == path.stem.startswith(BEYOND_A_SCHEMA)


@pytest.mark.parametrize(
    ("axes", "is_accepted"),
    [
        ({"adapter": {"lora": {"r": 16}}}, True),
        ({"adapter": ["lora", "lora(r=4)", {"vera": None}, "lora_r8"]}, True),
        ({"base": ["bnb_4bit", {"bnb_4bit": {"upcast": False}}]}, True),
        ({"adapter": {"lora": {}, "vera": {}}}, False),
        ({"adapter": {"loar": {}}}, False),
        ({"activations": {"keep": {}}}, False),
    ],
)
def test_schema_knows_techniques_with_parameters(axes, is_accepted):
    config = {"model": {"task": "causal-lm", "architecture": "llama"}, "axes": axes}
    validator = jsonschema.Draft202012Validator(json_schema())
    assert validator.is_valid(config) == is_accepted
