"""Texts that are recorded in tests/golden."""

import os
import re

from tests.support.commands import ROOT


def without_ids(text: str) -> str:
    """The text without its trials' ids, which change with every field of a trial."""
    return re.sub(r"\b[0-9a-f]{12}\b", "<trial id>", text)


def assert_golden(name: str, text: str) -> None:
    """The text is the recorded one. RECORD_GOLDEN=1 records it."""
    path = ROOT / "tests" / "golden" / name
    text = text.rstrip("\n") + "\n"
    if "RECORD_GOLDEN" in os.environ:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "if that is better: RECORD_GOLDEN=1 pytest"
