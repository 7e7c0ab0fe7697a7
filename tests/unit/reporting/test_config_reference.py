"""docs/configuration.md: generated, current and complete."""

from __future__ import annotations

from pathlib import Path

from orchestrator.reporting.config_reference import render

ROOT = Path(__file__).parents[3]


def test_reference_committed_page_is_current() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == render(), "make schema"
