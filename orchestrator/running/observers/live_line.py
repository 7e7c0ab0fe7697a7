"""The last line of a terminal: what runs now, for how long, and how long the rest may take."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from orchestrator.reporting.terminal.safe_text import raw_stream, visible
from orchestrator.running.observers.progress import Progress


class _LiveLine:
    """The line, which rich asks for again and again. Nothing of it reaches a file."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __rich__(self) -> Text:
        return Text(visible(self._progress.now()), no_wrap=True, overflow="ellipsis")


@contextmanager
def live_line(progress: Progress) -> Iterator[None]:
    """Show the line below what ``progress`` prints, if that goes to a terminal."""
    plain = progress.stream
    console = Console(file=raw_stream(plain))
    if console.is_jupyter or not console.is_terminal:
        yield
        return
    name = "stderr" if plain is sys.stderr else "stdout"
    # Once a second: drawing takes time of the processor that trials are measured on.
    with console.status(_LiveLine(progress), refresh_per_second=1):
        # If Ray is lost, this process ends at once, and would leave the cursor hidden.
        console.show_cursor(True)
        # rich has replaced the streams, to keep its line below the others.
        progress.stream = getattr(sys, name)
        try:
            yield
        finally:
            progress.stream = plain
