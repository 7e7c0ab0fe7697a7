"""The report as one self-contained HTML page."""

from __future__ import annotations

import html

from orchestrator.results.page import markdown
from orchestrator.results.summary import Summary


def render(summary: Summary) -> str:
    """The page's text."""
    return f"<!doctype html><pre>{html.escape(markdown.render(summary))}</pre>"
