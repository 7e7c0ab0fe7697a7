"""Foreign text for a terminal: what would act on it is shown as escapes, and long texts are cut."""

import codecs
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, TextIO, cast

_ACTING = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed: ESC, CSI, backspace
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi controls: they reorder what follows
    "\u2028\u2029"  # line and paragraph separators
    "\u200b\u2060-\u2064\u206a-\u206f\ufeff"  # invisible: two texts that differ look equal
    "\ud800-\udfff"  # halves of a surrogate pair, which no stream can encode
    "\U000e0000-\U000e007f"  # tags: invisible letters
    "]"
)


_PLAIN = str.maketrans(
    {"×": "x", "±": "+/-", "·": "-", "–": "-", "—": "-", "−": "-", "…": "...", "→": "->"}
    | {"≤": "<=", "≥": ">=", "≈": "~", "µ": "u", "²": "2", "’": "'", "“": '"', "”": '"'}
)
"""What stands for a character where the output's encoding, such as ASCII, does not have it."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in text), error.end


codecs.register_error("plain", _plain)


def visible(text: str) -> str:
    """The text with each character that acts on a terminal but tab and line feed as an escape."""
    return _ACTING.sub(_escape, text)


def shortened(text: str, characters: int = 400) -> str:
    """The text in one line, cut between two words if it is longer than ``characters``."""
    line = " ".join(text.split())
    # A first word that is longer by itself stays whole: half a path or name is of no use.
    width = max(characters, len(line.partition(" ")[0]) + len(" …"))
    if len(line) <= characters:
        return line
    return textwrap.shorten(line, width, placeholder=" …", break_on_hyphens=False)


def _escape(character: re.Match[str]) -> str:
    code = ord(character[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


class VisibleStream:
    """A text stream that makes visible all that is written to it; ``raw`` is the stream below."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw
        self.is_over = False

    @property
    def closed(self) -> bool:
        """Also once it is over: colorama, which Ray brings, resets the colours of any open stream
        when the process ends, and its control sequence would be made visible."""
        return self.is_over or self.raw.closed

    def write(self, text: str) -> int:
        """Write the text made visible; returns the length of what was asked for."""
        self.raw.write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: TextIO) -> TextIO:
    """The stream that control sequences of our own are written to."""
    if isinstance(stream, VisibleStream):
        return stream.raw
    return stream


@contextmanager
def safe_streams() -> Iterator[None]:
    """Within it, nothing printed to stdout or stderr acts on the terminal, and all is encoded."""
    stdout, stderr = sys.stdout, sys.stderr
    for stream in (stdout, stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="plain")
    within = [VisibleStream(raw_stream(stream)) for stream in (stdout, stderr)]
    sys.stdout, sys.stderr = (cast(TextIO, stream) for stream in within)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        for stream in within:
            stream.is_over = True
