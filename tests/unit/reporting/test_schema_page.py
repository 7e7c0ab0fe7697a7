"""docs/schema.md is generated from the code."""

from __future__ import annotations

from pathlib import Path

from orchestrator.reporting import schema_page

PAGE = Path(__file__).parents[3] / "docs" / "schema.md"


def test_schema_page_is_up_to_date() -> None:
    command = "run: python -m orchestrator.reporting.schema_page > docs/schema.md"
    assert PAGE.read_text() == schema_page.render(), command
