"""Long texts cut between two words."""

from __future__ import annotations

_ELLIPSIS = " …"


def shortened(text: str, characters: int = 400) -> str:
    """The text in one line, cut between two words if it is longer than ``characters``.

    A first word that is longer by itself stays whole: half a path or name is of no use.
    """
    line = " ".join(text.split())
    if len(line) <= characters:
        return line
    # The last space that leaves room for the ellipsis, else the end of the first word.
    end = line.rfind(" ", 0, characters - len(_ELLIPSIS) + 1)
    if end < 0:
        end = line.find(" ")
    if end < 0:
        return line
    return f"{line[:end]}{_ELLIPSIS}"
