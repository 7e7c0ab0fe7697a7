"""This program as a package: the name it is installed under, and its version."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "training-frontier"
"""The name that pip knows the program by; "orchestrator" on the index is another program."""


def tool_version() -> str:
    """This project's installed version, or "source" when it runs from a checkout."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "source"
