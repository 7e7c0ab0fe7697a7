"""A report page opened in headless Chromium: what its tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import chromium, is_required

DRAWN = '#chart[aria-busy="false"]'
FIGURE = """((place) => [...Bokeh.index].find((view) =>
  document.querySelector(place).contains(view.el)).model)"""
"""A function in the page: the figure that stands in a place."""
RING = """(() => {
  const view = [...Bokeh.index].find((own) => document.querySelector("#chart").contains(own.el));
  const box = view.canvas_view.el.getBoundingClientRect();
  const { x: [x], y: [y] } = view.model.renderers.at(-1).data_source.data;
  const { x_scale, y_scale } = view.frame;
  return { x: box.x + x_scale.compute(x), y: box.y + y_scale.compute(y), gib: x };
})()"""


def require_browser() -> str:
    """The browser's path. Skips the tests where there is none, or fails where one is required."""
    path = chromium()
    if path is None and is_required():
        pytest.fail("BROWSER_TESTS=required, but there is no Chromium", pytrace=False)
    if path is None:
        pytest.skip("no Chromium on this machine")
    return path


@contextmanager
def running_browser() -> Iterator[Any]:
    """A headless Chromium."""
    path = require_browser()
    if is_required():
        from playwright import sync_api as playwright
    else:
        playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, path: Path, *, hash: str = "", **context: Any) -> Iterator[Any]:
    """The page, drawn.

    In the end no script has failed, used the network, broken the content security policy or opened
    a dialogue.
    """
    own = browser.new_context(
        **{"viewport": {"width": 1400, "height": 900}, "reduced_motion": "reduce", **context}
    )
    own.set_default_timeout(60_000)
    page = own.new_page()
    wrong: list[str] = []
    watch(page, wrong)
    page.goto(f"{path.as_uri()}{hash}")
    page.wait_for_selector(DRAWN)
    yield page
    own.close()
    assert wrong == []


def watch(page: Any, wrong: list[str]) -> None:
    """Collect what a page must not do: errors, dialogues, requests that leave the machine."""

    def on_console(message: Any) -> None:
        if message.type == "error":
            wrong.append(message.text)

    def on_dialog(dialog: Any) -> None:
        wrong.append(f"dialogue: {dialog.message}")
        dialog.dismiss()

    def on_request(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            wrong.append(request.url)

    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", on_console)
    page.on("dialog", on_dialog)
    page.on("request", on_request)


def key(page: Any, place: str = "#chart") -> list[str]:
    """What the key of the figure in a place names."""
    page.wait_for_selector(DRAWN)
    found = page.evaluate(
        f"""(() => {{
          const figure = {FIGURE}({place!r});
          const legend = [...figure.above, ...figure.below].find((own) => own.type === "Legend");
          return legend.items.map((item) => item.label.value);
        }})()"""
    )
    return list(found)


def decision(page: Any) -> str:
    """The configuration that the page shows as its decision."""
    return str(page.locator("#decision strong").first.inner_text())
