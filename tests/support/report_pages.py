"""A report page opened in headless Chromium: what its tests share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DRAWN = "#chart > svg"
"""What is there as soon as the page has drawn its chart."""


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
    """What the key of the chart in a place names."""
    return [str(name) for name in page.locator(f"{place} .key button").all_inner_texts()]


def texts(page: Any, place: str) -> list[str]:
    """What a chart says within its frame: names of its points or lines, sizes of budgets."""
    return [str(text) for text in page.locator(f"{place} svg svg text").all_text_contents()]


def ring(page: Any) -> tuple[float, float]:
    """The centre of the ring around the decision, in pixels of the window."""
    box = page.locator("#chart .ring").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def decision(page: Any) -> str:
    return str(page.locator("#decision strong").first.inner_text())
