"""Pages of docs/ that are made from the code are current."""

from pathlib import Path

import pytest

from orchestrator.reporting.reference import config_reference, schema_page

DOCS = Path(__file__).parents[4] / "docs"


@pytest.mark.parametrize(
    ("page", "render"),
    [("configuration.md", config_reference.render), ("schema.md", schema_page.render)],
)
def test_generated_page_is_current(page, render):
    assert (DOCS / page).read_text() == render(), "make schema"
