"""The sequence lengths that a config asks for, each with the key that names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.planning.axes import SEQUENCE_LENGTH, grids_of
from orchestrator.planning.problems import KeyPath
from orchestrator.planning.settings import SweepConfig

Length = tuple[KeyPath, int]
"""The key that limits the length of samples, and the limit in tokens."""


def sequence_lengths(config: SweepConfig) -> Iterator[Length]:
    """All lengths that a trial has; none for images, and none for token ids that are not cut."""
    if config.model.task == "image-classification":
        return
    if AXES[SEQUENCE_LENGTH].default in used_choices(config, SEQUENCE_LENGTH):
        yield from _of_data(config)
    yield from lengths_of_axis(config)


def lengths_of_axis(config: SweepConfig) -> Iterator[Length]:
    """The lengths that a trial has by the axis, wherever the file names them."""
    places: list[tuple[KeyPath, Mapping[str, Any]]] = [(("axes",), config.axes)]
    for name, subset in config.subsets.items():
        places.append((("subsets", name, "axes"), subset))
    for index, trial in enumerate(config.trials):
        places.append((("trials", index), trial))
    named = set()
    used = used_choices(config, SEQUENCE_LENGTH)
    for place, grid in places:
        for at, value in _of_axis(grid, place):
            named.add(value)
            if value in used:
                yield at, value
    # A baseline that no grid names is a key of its own.
    for at, value in _of_axis(config.baseline, ("baseline",)):
        if value in used - named:
            yield at, value


def used_choices(config: SweepConfig, axis: str) -> set[Choice]:
    """The values of an axis that trials have: of a grid, of single trials, or the baseline's."""
    default = config.baseline.get(axis, AXES[axis].default)
    used = {trial.get(axis, default) for trial in config.trials}
    for grid in grids_of(config.axes, config.subsets, config.trials):
        used.update(grid.get(axis, (default,)))
    return used


def _of_data(config: SweepConfig) -> Iterator[Length]:
    synthetic = config.data.synthetic
    if synthetic is not None:
        yield ("data", "synthetic", "sequence_length"), synthetic.sequence_length
    file = config.data.file
    # Without a tokenizer the file holds token ids, which stay as they are.
    if file is not None and file.tokenizer is not None:
        yield ("data", "file", "max_length"), file.max_length


def _of_axis(grid: Mapping[str, Any], at: KeyPath) -> Iterator[Length]:
    """The integers that a grid or an assignment has on the axis."""
    values = grid.get(SEQUENCE_LENGTH, ())
    if not isinstance(values, tuple):
        values = (values,)
    for value in values:
        if isinstance(value, int):
            yield (*at, SEQUENCE_LENGTH), value
