"""The sequence lengths that a config asks for, each with the key that names it."""

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.planning.choices.axes import SEQUENCE_LENGTH
from orchestrator.planning.problems import KeyPath
from orchestrator.planning.settings import SweepConfig

Length = tuple[KeyPath, int]
"""The key that limits the length of samples, and the limit in tokens."""


def sequence_lengths(config: SweepConfig) -> Iterator[Length]:
    """All lengths that a trial has; none for images, and none for token ids that are not cut."""
    if config.model.task == "image-classification":
        return
    if AXES[SEQUENCE_LENGTH].default in used_choices(config, SEQUENCE_LENGTH):
        synthetic, file = config.data.synthetic, config.data.file
        if synthetic is not None:
            yield ("data", "synthetic", "sequence_length"), synthetic.sequence_length
        # Without a tokenizer the file holds token ids, which stay as they are.
        if file is not None and file.tokenizer is not None:
            yield ("data", "file", "max_length"), file.max_length
    if config.data.synthetic is not None and config.data.synthetic.target_length is not None:
        yield ("data", "synthetic", "target_length"), config.data.synthetic.target_length
    yield from lengths_of_axis(config)


def lengths_of_axis(config: SweepConfig) -> Iterator[Length]:
    """The lengths that a trial has by the axis, wherever the file names them."""
    places: dict[KeyPath, Mapping[str, Any]] = {("axes",): config.axes}
    places |= {("subsets", name, "axes"): subset for name, subset in config.subsets.items()}
    places |= {("trials", index): trial for index, trial in enumerate(config.trials)}
    used = used_choices(config, SEQUENCE_LENGTH)
    named = [found for place, grid in places.items() for found in _of_axis(grid, place)]
    yield from (found for found in named if found[1] in used)
    # A baseline that no grid names is a key of its own.
    for at, value in _of_axis(config.baseline, ("baseline",)):
        if value in used - {length for _, length in named}:
            yield at, value


def used_choices(config: SweepConfig, axis: str) -> set[Choice]:
    """The values of an axis that trials have: of a grid, of single trials, or the baseline's."""
    default = config.baseline.get(axis, AXES[axis].default)
    used = {trial.get(axis, default) for trial in config.trials}
    for grid in config.grids:
        used.update(grid.get(axis, (default,)))
    return used


def _of_axis(grid: Mapping[str, Any], at: KeyPath) -> Iterator[Length]:
    values = grid.get(SEQUENCE_LENGTH, ())
    for value in values if isinstance(values, tuple) else (values,):
        if isinstance(value, int):
            yield (*at, SEQUENCE_LENGTH), value
