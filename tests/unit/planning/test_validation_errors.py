"""A file's content typed by its schema."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Literal

import pytest

from orchestrator.planning.schema_models import Section, SweepSection
from orchestrator.planning.validation_errors import section_of

VALUE = {"model": {"task": "causal-lm", "architecture": "gpt2"}}
VARIABLE = "PYDANTIC_DISABLE_PLUGINS"


@pytest.mark.parametrize("before", [None, "logfire"])
def test_section_of_leaves_the_environment_as_it_is(
    before: Literal["logfire"] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, before)
    assert isinstance(section_of(VALUE), SweepSection)
    assert isinstance(section_of({}), list)
    assert os.environ.get(VARIABLE) == before


def test_section_of_asks_no_package_for_plugins() -> None:
    # In a process of its own, because pydantic asks only once.
    program = f"""
import importlib.metadata
def refuse(**parameters):
    raise SystemExit("packages were searched for plugins")
importlib.metadata.entry_points = refuse
from orchestrator.planning.validation_errors import section_of
section_of({VALUE})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_every_key_of_every_section_has_a_description_in_the_schema() -> None:
    definitions = SweepSection.model_json_schema()
    sections = {"SweepSection": definitions, **definitions["$defs"]}
    for section in Section.__subclasses__():
        for key in section.model_fields:
            assert sections[section.__name__]["properties"][key]["description"], (section, key)
