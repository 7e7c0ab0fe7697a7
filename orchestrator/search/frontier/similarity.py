"""How alike a plan's configurations are, and the curves that they lie on: what the choices alone foretell of costs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from jobs.techniques import AXES
from orchestrator.search.frontier.configurations import Configuration, Key

Array = NDArray[np.float64]
T = TypeVar("T", bound=Hashable)

KIN = 0.98
"""How much of what two curves may share with an axis they do where its values are kin (``Variant.kin``)."""
APART = 0.95
"""How much of a deviation from the law two curves share for each choice that sets them apart."""


def likeness(planned: Sequence[Configuration]) -> Array:
    """How much of a deviation two configurations share, shape (configurations, configurations)."""
    octaves = np.log2([one.micro_batch for one in planned])
    near = np.exp(-(np.subtract.outer(octaves, octaves) ** 2) / 2)
    return np.asarray(APART ** apart([one.curve for one in planned]) * near)


def apart(curves: Iterable[Key]) -> Array:
    """In how many choices two curves differ."""
    codes = _codes(curves)
    return np.asarray((codes[:, None] != codes[None]).sum(axis=2), float)


def shared(curves: Iterable[Key]) -> Array:
    """How much two curves share with each of the choices that differ at all, shape (curves, curves, choices)."""
    curves = list(curves)
    codes, of_kin = _codes(curves), _codes(curves, of_kin=True)
    if not (differ := (codes != codes[:1]).any(axis=0)).any():
        return np.ones((len(curves), len(curves), 1))
    same, kin = (one[:, None, differ] == one[None, :, differ] for one in (codes, of_kin))
    return np.where(same, 1.0, KIN * kin)


def kin(planned: Sequence[Configuration]) -> dict[Configuration, int]:
    """A number for each configuration; of two that differ only where their values are kin, the same."""
    numbers: Numbers[Key] = Numbers()
    rows = zip(planned, _codes([one.curve for one in planned], of_kin=True).tolist(), strict=True)
    return {one: numbers[one.training, one.micro_batch, *row] for one, row in rows}


def asking_no_more(
    planned: Sequence[Configuration],
) -> dict[Configuration, tuple[Configuration, ...]]:
    """For each configuration those that differ in nothing but that they ask of the host what it does, or less
    (``Variant.host_work_of``)."""
    groups: dict[Key, list[tuple[Configuration, dict[str, Any]]]] = {}
    for one in planned:
        techniques, regime = one.curve
        assert isinstance(techniques, tuple)
        chosen = {axis: value for axis, _, value in techniques}
        groups.setdefault((one.training, one.micro_batch, regime), []).append((one, chosen))
    return {
        one: tuple(
            other for other, less in members if other is not one and _is_part_of(less, chosen)
        )
        for members in groups.values()
        for one, chosen in members
    }


def _is_part_of(other: Mapping[str, Any], chosen: Mapping[str, Any]) -> bool:
    return all(
        value in (chosen.get(axis), *_host_work_of(axis, chosen.get(axis)))
        for axis, value in other.items()
    )


def _host_work_of(axis: str, value: Any) -> tuple[str, ...]:
    variants = AXES[axis].variants if axis in AXES else {}
    return variants[value].host_work_of if value in variants else ()


class Numbers(dict[T, int]):
    """Numbers things as they come."""

    def __missing__(self, key: T) -> int:
        self[key] = len(self)
        return self[key]


def _codes(curves: Iterable[Key], *, of_kin: bool = False) -> NDArray[np.int64]:
    """A number for each choice of a curve, shape (curves, choices); kin may have one number."""
    numbers: Numbers[object] = Numbers()
    rows = []
    for techniques, regime in curves:
        assert isinstance(techniques, tuple)
        chosen = (
            (axis, kind, _kin(axis, value) if of_kin else value) for axis, kind, value in techniques
        )
        rows.append({"": regime, **{axis: (kind, value) for axis, kind, value in chosen}})
    axes = sorted({axis for row in rows for axis in row})
    return np.array([[numbers[axis, row.get(axis)] for axis in axes] for row in rows], int).reshape(
        len(rows), len(axes)
    )


def _kin(axis: str, value: Any) -> Any:
    """The one that stands for all its kin."""
    variants = AXES[axis].variants if axis in AXES else {}
    return variants[value].kin or value if value in variants else value
