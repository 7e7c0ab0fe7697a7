"""The training recipe: the choices that change what a training learns."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Self

Choice = str | int | float | bool | None
"""The value chosen on one axis."""


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """The choices that change what a training learns: optimizer, adapter, learning rate ..."""

    choices: frozenset[tuple[str, Choice]] = frozenset()

    @classmethod
    def of(cls, choices: Mapping[str, Choice]) -> Self:
        """The recipe with these choices: axis -> value."""
        return cls(frozenset(choices.items()))

    @property
    def by_axis(self) -> dict[str, Choice]:
        """Axis -> value, axes in alphabetical order."""
        return dict(sorted(self.choices, key=itemgetter(0)))


PLAIN = TrainingRecipe()
"""The recipe without any choice: the training as the user wrote it."""
