"""The shapes of a batch's tensors, from the configuration and the first rows of the data file."""

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
    """The shapes of the model's inputs in one forward pass; empty if text and files do not tell."""
    task = config.model.task
    data = config.data_of(config.baseline)
    if all(map(reads_pairs, used_choices(config, "loop"))):
        return _of_pairs(data, micro_batch)
    if task == "image-classification" and (data.file is None or data.file.format == "imagefolder"):
        random = data.synthetic or SyntheticData()  # of the size that files get, too
        return _of_images(random, ModelConfiguration.of(config.model), micro_batch)
    if data.file is not None:
        return _of_file(data.file, task, micro_batch)
    assert data.synthetic is not None
    if task == "image-text-to-text":
        return image_shapes(data.synthetic, ModelConfiguration.of(config.model), micro_batch)
    return _of_text(data.synthetic, task, micro_batch)


def in_words(shapes: Shapes) -> str:
    """``input_ids 4 × 512, labels 4``."""
    return ", ".join(f"{name} {' × '.join(map(str, sizes))}" for name, sizes in shapes.items())


def _of_pairs(data: DataSpec, micro_batch: int) -> Shapes:
    is_equal = data.synthetic is not None and data.synthetic.lengths is None
    length: Size = data.tokens if is_equal else f"up to {data.tokens}"
    names = ("input_ids", "attention_mask", "completion_mask")
    return dict.fromkeys(names, (2 * micro_batch, length))


def _of_text(data: SyntheticData, task: Task, micro_batch: int) -> Shapes:
    is_equal = data.lengths is None
    length: Size = data.sequence_length if is_equal else f"up to {data.sequence_length}"
    shapes = _of_tokens(task, micro_batch, length)
    # Rows of one length without padding need no mask.
    if is_equal and not data.padding:
        del shapes["attention_mask"]
    return shapes


def _of_tokens(task: Task, micro_batch: int, length: Size) -> dict[str, tuple[Size, ...]]:
    tokens = (micro_batch, length)
    labels = (micro_batch,) if task == "sequence-classification" else tokens
    return {"input_ids": tokens, "attention_mask": tokens, "labels": labels}


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
    if file.tokenizer is None or task == "image-classification":
        return _of_columns(file, micro_batch)
    # A text is cut at ``max_length``, and padded to the longest text of its batch.
    return _of_tokens(task, micro_batch, f"up to {file.max_length}")


def _of_columns(file: DatasetFile, micro_batch: int) -> Shapes:
    """The file's own columns. Lists have the length of the longest in the first rows."""
    try:
        data = read_data_file(Path(file.path), file.format)
    except NoDataFileError:
        return {}
    shapes: dict[str, tuple[Size, ...]] = {}
    for name, values in data.values(file.columns).items():
        lengths = [len(value) for value in values if isinstance(value, list)]
        shapes[name] = (micro_batch, max(lengths)) if lengths else (micro_batch,)
    return shapes
