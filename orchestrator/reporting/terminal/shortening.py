"""Long texts cut between two words."""

import textwrap

_ELLIPSIS = " …"


def shortened(text: str, characters: int = 400) -> str:
    """The text in one line, cut between two words if it is longer than ``characters``."""
    line = " ".join(text.split())
    # A first word that is longer by itself stays whole: half a path or name is of no use.
    width = max(characters, len(line.partition(" ")[0]) + len(_ELLIPSIS))
    if len(line) <= characters:
        return line
    return textwrap.shorten(line, width, placeholder=_ELLIPSIS, break_on_hyphens=False)
