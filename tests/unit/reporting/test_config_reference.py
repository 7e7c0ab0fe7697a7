"""docs/configuration.md: generated, current and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.techniques import AXES
from orchestrator.planning.config_types import keys_of
from orchestrator.planning.loggers import LOGGERS
from orchestrator.planning.search_options import SEARCH_KINDS
from orchestrator.reporting.config_reference import render

ROOT = Path(__file__).parents[3]


def test_reference_committed_page_is_current() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == render(), "make schema"


@pytest.mark.parametrize("name", AXES)
def test_reference_has_a_row_for_each_value_of_an_axis(name: str) -> None:
    _, _, after = render().partition(f"### `{name}`\n")
    section = after.partition("\n### ")[0]
    for value, variant in AXES[name].variants.items():
        row = next(line for line in section.splitlines() if line.startswith(f"| `{value}` |"))
        assert row.endswith(f"| {variant.numerical_effect} |")


def test_reference_names_every_search_and_logger_argument() -> None:
    page = render()
    for kind, search in SEARCH_KINDS.items():
        assert f"### `search: {kind}`" in page
        assert all(f"| `{option}` |" in page for option in keys_of(search) if option != "kind")
    for logger, row in LOGGERS.items():
        assert f"### `{logger}`" in page
        assert all(f"| `{argument}` |" in page for argument in keys_of(row))


def test_reference_writes_defaults_as_they_are_typed() -> None:
    lines = render().splitlines()
    timeout = next(line for line in lines if line.startswith("| `timeout` |"))
    cpus = next(line for line in lines if line.startswith("| `cpus_per_trial` |"))
    assert "| `5m` |" in timeout
    assert "| integer from 1 or `auto` | `auto` |" in cpus


def test_reference_search_option_that_is_a_switch_has_no_bounds() -> None:
    row = next(line for line in render().splitlines() if line.startswith("| `any_recipe` |"))
    assert row.startswith("| `any_recipe` | true or false | `false` |")
