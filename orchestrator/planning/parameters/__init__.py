"""The parameters of techniques, checked against the source of the library's configuration class."""

from orchestrator.planning.parameters.values import Mistake, read_technique

__all__ = ["Mistake", "read_technique"]
