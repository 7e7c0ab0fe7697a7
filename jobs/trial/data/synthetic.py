"""Random samples of a task's shape."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jobs.spec import SyntheticData, Task
from jobs.tasks import SPEECH, image_shape
from jobs.trial.data.collators import IGNORED
from jobs.trial.data.row_lengths import random_lengths, random_token_range
from jobs.trial.sound_shapes import sound_shape

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def synthetic(
    spec: SyntheticData, task: Task, config: PretrainedConfig, *, samples: int | None, seed: int
) -> Any:
    """A dataset of ``samples`` random samples at least; of unequal rows always ``spec.samples``."""
    # As in a data file, rows of unequal length do not depend on the number of measured steps.
    count = spec.samples if spec.lengths is not None else max(spec.samples, samples or 0)
    rng = np.random.default_rng(seed)
    if task == "image-classification":
        shape = image_shape(config, spec.image_size)
        return RandomInputs("pixel_values", shape, (0, config.num_labels), (count,), rng)
    if task in SPEECH:
        name, sound = sound_shape(spec, task, config.model_type, partial(getattr, config))
        letters = random_token_range(config.vocab_size)
        return RandomInputs(name, sound, letters, (count, spec.sequence_length), rng)
    from datasets import Dataset

    make = _text if spec.lengths is None else _ragged_text
    columns = make(spec, task, config, count, rng)
    if spec.target_length is not None:
        columns["labels"] = make(_of_targets(spec), task, config, count, rng)["labels"]
    return Dataset.from_dict(columns).with_format("pt")


def _of_targets(spec: SyntheticData) -> SyntheticData:
    """The targets as texts of their own, whose lengths vary as those of the inputs."""
    length = spec.target_length or spec.sequence_length
    lengths = spec.lengths
    if lengths is not None:
        lengths = replace(lengths, mean=lengths.mean * length / spec.sequence_length)
    return replace(spec, sequence_length=length, lengths=lengths)


def _ragged_text(
    spec: SyntheticData, task: Task, config: PretrainedConfig, count: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Columns of lists, each as long as its row; classification labels are (count,)."""
    lengths = random_lengths(spec, count, rng)
    whole = _text(replace(spec, lengths=None, padding=0.0), task, config, count, rng)
    for name, values in whole.items():
        is_of_sample = name == "labels" and task == "sequence-classification"
        if not is_of_sample:
            rows = zip(values, lengths, strict=True)
            whole[name] = [row[:length] for row, length in rows]
    return whole


def _text(
    spec: SyntheticData, task: Task, config: PretrainedConfig, count: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Columns of shape (count, sequence_length), int64; classification labels are (count,)."""
    shape = (count, spec.sequence_length)
    # Token ids are drawn first, then padding. So equal seeds give equal tokens at any padding.
    # A vision-language model that is trained on texts alone has its vocabulary one level deeper.
    words = config if hasattr(config, "vocab_size") else config.get_text_config()
    ids = rng.integers(*random_token_range(words.vocab_size), shape, dtype=np.int64)
    if spec.padding == 0:
        return {"input_ids": ids, "labels": _labels(task, ids, np.full(shape, True), config, rng)}
    lengths = random_lengths(spec, count, rng)
    is_real = np.arange(spec.sequence_length) < lengths[:, None]
    ids = np.where(is_real, ids, getattr(config, "pad_token_id", None) or 0)
    return {
        "input_ids": ids,
        "attention_mask": is_real.astype(np.int64),
        "labels": _labels(task, ids, is_real, config, rng),
    }


def _labels(
    task: Task,
    ids: np.ndarray,
    is_real: np.ndarray,
    config: PretrainedConfig,
    rng: np.random.Generator,
) -> np.ndarray:
    """Labels for token ids of shape (count, length); padding is ignored."""
    count, _ = ids.shape
    # Labels are one class for each sample, one for each token, or the tokens themselves.
    if task == "sequence-classification":
        return _class_labels(config, count, rng)
    if task == "token-classification":
        return np.where(is_real, rng.integers(0, config.num_labels, ids.shape), IGNORED)
    if task == "masked-lm":
        # The share that BERT predicts (Devlin et al. 2018). Predicted positions keep their token:
        # masking them would change no shape and no cost.
        is_masked = rng.random(ids.shape) < 0.15
        return np.where(is_real & is_masked, ids, IGNORED)
    return np.where(is_real, ids, IGNORED)  # language models predict the text itself


def _class_labels(config: PretrainedConfig, count: int, rng: np.random.Generator) -> np.ndarray:
    """Labels of whole samples: a class (count,), a number (count,), or several (count, outputs)."""
    outputs = int(config.num_labels or 0)
    # transformers takes a model with one output for a regression, and its loss needs fractions.
    if outputs == 1:
        return rng.standard_normal(count, dtype=np.float32)
    if config.problem_type == "regression":
        return rng.standard_normal((count, outputs), dtype=np.float32)
    if config.problem_type == "multi_label_classification":
        return rng.integers(0, 2, (count, outputs)).astype(np.float32)
    return rng.integers(0, outputs, size=(count,))


class RandomInputs(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random normalised images or sounds: float32 of ``shape`` under the model's ``name`` for them.
    Their int64 labels, of ``labels_shape``, have one row for each."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        label_range: tuple[int, int],
        labels_shape: tuple[int, ...],
        rng: np.random.Generator,
    ) -> None:
        self._name = name
        # Normalised inputs have about zero mean and unit variance. There are 64 at most, which
        # further samples repeat, so that host memory stays small.
        pool = rng.standard_normal((min(labels_shape[0], 64), *shape), dtype=np.float32)
        self._pool = torch.from_numpy(pool)
        self._labels = torch.from_numpy(rng.integers(*label_range, labels_shape))

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        # Labels differ from sample to sample, while inputs repeat.
        inputs = self._pool[index % len(self._pool)]
        return {self._name: inputs, "labels": self._labels[index]}
