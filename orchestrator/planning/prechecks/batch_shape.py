"""The shapes of a batch's tensors, from the configuration and the first rows of the data file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from jobs.spec import DatasetFile, DataSpec, SyntheticData, Task
from jobs.tasks import image_shape
from orchestrator.planning.prechecks.data_file import NoDataFileError, read_data_file
from orchestrator.planning.prechecks.images import image_shapes
from orchestrator.planning.prechecks.lengths import used_choices
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.planning.prechecks.pairs import reads_pairs
from orchestrator.planning.settings import SweepConfig

Size = int | str
"""Elements along one dimension, or text such as "up to 512" if only a bound is known."""
Shapes = Mapping[str, tuple[Size, ...]]
"""Name of a tensor -> its size in each dimension."""


def batch_shapes(config: SweepConfig, micro_batch: int) -> Shapes:
    """The shapes of the tensors that a trial gives to the model in one forward pass.

    Empty if the shapes cannot be read from the configuration and the file.
    """
    task = config.model.task
    data = config.data_of(config.baseline)
    if all(map(reads_pairs, used_choices(config, "loop"))):
        return _of_pairs(data, micro_batch)
    if data.file is not None:
        return _of_file(data.file, task, micro_batch)
    assert data.synthetic is not None
    if task == "image-classification":
        return _of_images(data.synthetic, ModelConfiguration.of(config.model), micro_batch)
    if task == "image-text-to-text":
        return image_shapes(data.synthetic, ModelConfiguration.of(config.model), micro_batch)
    return _of_text(data.synthetic, task, micro_batch)


def in_words(shapes: Shapes) -> str:
    """``input_ids 4 × 512, labels 4``."""
    words = []
    for name, sizes in shapes.items():
        words.append(f"{name} {' × '.join(map(str, sizes))}")
    return ", ".join(words)


def _of_pairs(data: DataSpec, micro_batch: int) -> Shapes:
    """Both answers of each pair, with their prompts, in one batch."""
    length: Size = f"up to {data.tokens}"
    if data.synthetic is not None and data.synthetic.lengths is None:
        length = data.tokens
    names = ("input_ids", "attention_mask", "completion_mask")
    return dict.fromkeys(names, (2 * micro_batch, length))


def _of_text(data: SyntheticData, task: Task, micro_batch: int) -> Shapes:
    length: Size = data.sequence_length if data.lengths is None else f"up to {data.sequence_length}"
    tokens = (micro_batch, length)
    shapes: dict[str, tuple[Size, ...]] = {"input_ids": tokens}
    # Rows of one length without padding need no mask.
    if data.padding or data.lengths is not None:
        shapes["attention_mask"] = tokens
    shapes["labels"] = tokens
    if task == "sequence-classification":
        shapes["labels"] = (micro_batch,)
    return shapes


def _of_images(data: SyntheticData, configuration: ModelConfiguration, micro_batch: int) -> Shapes:
    if configuration.known is None:
        return {}
    names = ("image_size", "num_channels")
    whole, vision = (
        SimpleNamespace(**{name: configuration.value(part + name) for name in names})
        for part in ("", "vision_config.")
    )
    whole.vision_config = vision
    shape = image_shape(whole, data.image_size)
    return {"pixel_values": (micro_batch, *shape), "labels": (micro_batch,)}


def _of_file(file: DatasetFile, task: Task, micro_batch: int) -> Shapes:
    if file.tokenizer is None:
        return _of_columns(file, micro_batch)
    # A text is cut at ``max_length``, and padded to the longest text of its batch.
    tokens: tuple[Size, ...] = (micro_batch, f"up to {file.max_length}")
    labels = tokens
    if task == "sequence-classification":
        labels = (micro_batch,)
    return {"input_ids": tokens, "attention_mask": tokens, "labels": labels}


def _of_columns(file: DatasetFile, micro_batch: int) -> Shapes:
    """The file's own columns. Lists have the length of the longest in the first rows."""
    try:
        data = read_data_file(Path(file.path), file.format)
    except NoDataFileError:
        return {}
    columns = file.columns or {name: name for name in data.columns}
    shapes: dict[str, tuple[Size, ...]] = {}
    for ours, theirs in columns.items():
        lengths = [len(row[theirs]) for row in data.rows if isinstance(row.get(theirs), list)]
        shapes[ours] = (micro_batch,)
        if lengths:
            shapes[ours] = (micro_batch, max(lengths))
    return shapes
