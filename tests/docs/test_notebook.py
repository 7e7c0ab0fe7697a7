"""The documentation's notebook shows what it shows when it is executed."""

import nbformat
import pytest

from tests.docs.notebook import PATH, executed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_shows_what_its_cells_give(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    shown = [cell.get("outputs") for cell in nbformat.read(PATH, as_version=4).cells]
    assert shown == [cell.get("outputs") for cell in executed().cells]
    pages = [
        output.data.get("text/html", "")
        for outputs in shown
        if outputs
        for output in outputs
        if "data" in output
    ]
    assert any(page.startswith("<table>") for page in pages)
    assert any("batch 32 · bf16 · adamw_torch_fused" in page for page in pages)
