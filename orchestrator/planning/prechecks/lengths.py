"""The sequence lengths that a config asks for, each with the key that names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.planning.axes import SEQUENCE_LENGTH
from orchestrator.planning.problems import KeyPath
from orchestrator.planning.settings import SweepConfig

Length = tuple[KeyPath, int]
"""The key that limits the length of samples, and the limit in tokens."""


def sequence_lengths(config: SweepConfig) -> Iterator[Length]:
    """All lengths of the sweep; none for images, and none for token ids that are not cut."""
    if config.model.task == "image-classification":
        return
    # Where the grid names the length, no trial has the one of the data.
    if SEQUENCE_LENGTH not in config.axes:
        yield from _of_data(config)
    yield from _of_axis(config.axes, ("axes",))
    for name, subset in config.subsets.items():
        yield from _of_axis(subset, ("subsets", name, "axes"))
    for index, trial in enumerate(config.trials):
        yield from _of_axis(trial, ("trials", index))


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
