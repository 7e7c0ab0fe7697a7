"""A configuration of ours in the making, and what of the example it cannot say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Draft:
    """The sections of our configuration file. ``missing`` are the reasons why it is not enough."""

    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    """Plain fields of TrainingArguments."""
    axes: dict[str, Any] = field(default_factory=dict)
    """Axis -> its one value."""
    measure: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def miss(self, reason: str) -> None:
        """Note once what our configuration cannot say."""
        if reason not in self.missing:
            self.missing.append(reason)

    def document(self) -> dict[str, Any]:
        """The content of our configuration file."""
        return {
            "model": self.model,
            "data": self.data,
            "training_arguments": self.arguments,
            "axes": self.axes,
            "measure": self.measure,
        }
