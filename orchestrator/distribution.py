"""This program as a package: the name it is installed under, its version, and its extras."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

DISTRIBUTION = "training-frontier"
"""The name that pip knows the program by; "orchestrator" on the index is another program."""


def can_draw() -> bool:
    """Whether the extra ``pictures`` is installed."""
    return find_spec("matplotlib") is not None


def tool_version() -> str:
    """This project's installed version, or "source" when it runs from a checkout."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "source"
