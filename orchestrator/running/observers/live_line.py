"""The last line of a terminal: what runs now, for how long, and how long the rest may take."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from orchestrator.reporting.terminal.safe_text import raw_stream, visible
from orchestrator.running.observers.progress import Progress


class LiveLine:
    """The line, which rich asks for again and again. Nothing of it reaches a file."""

    def __init__(self) -> None:
        self.progress: Progress | None = None

    def __rich__(self) -> Text:
        text = visible(self.progress.now()) if self.progress is not None else ""
        return Text(text, no_wrap=True, overflow="ellipsis")

    @contextmanager
    def shown(self, stream: str) -> Iterator[None]:
        """Below what is printed to ``sys.stdout`` or ``sys.stderr``, which rich replaces."""
        console = Console(file=raw_stream(getattr(sys, stream)))
        if console.is_jupyter or not console.is_terminal:
            yield
            return
        # Once a second: drawing takes time of the processor that trials are measured on.
        with console.status(self, refresh_per_second=1):
            # If Ray is lost, this process ends at once, and would leave the cursor hidden.
            console.show_cursor(True)
            yield
