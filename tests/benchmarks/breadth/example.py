"""One example configuration of axolotl: its keys, and which of them a translation has used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml


class Example:
    """A configuration file. A key without a value counts as absent, as it does for axolotl."""

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        self.name = name
        self._values = {key: value for key, value in content.items() if value is not None}
        self._used: set[str] = set()

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key, which now counts as used; the default if it is absent."""
        self._used.add(key)
        return self._values.get(key, default)

    def is_on(self, key: str) -> bool:
        """Whether a switch is on; the key now counts as used."""
        return bool(self.take(key))

    def number(self, key: str) -> float | None:
        """The number of a key, which now counts as used. YAML reads 2e-5 as a text."""
        value = self.take(key)
        return None if value is None else float(value)

    def ignore(self, *keys: str) -> None:
        """Count keys as used that change nothing here."""
        self._used.update(keys)

    def unused(self) -> list[str]:
        """The keys with a value that no part of the translation has used, by name."""
        return sorted(self._values.keys() - self._used)


def examples_in(folder: Path) -> Iterator[Example]:
    """Every YAML file below a folder that names a model, by path.

    Raises yaml.YAMLError for a file that is not YAML.
    """
    for path in sorted(folder.rglob("*.y*ml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        # Files beside the configurations say where to run them, not what to train.
        if isinstance(content, dict) and "base_model" in content:
            yield Example(path.relative_to(folder).as_posix(), content)
