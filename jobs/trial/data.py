"""The dataset a trial trains on: synthetic samples of the task's right shape, or the user's own local file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jobs.spec import DatasetFile, DataSpec, SyntheticData, Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig

IGNORED = -100
"""The label that the loss leaves out."""
_IMAGE_POOL = 64
"""Distinct synthetic images; further samples repeat them, so that host memory stays small."""

Collator = Callable[[list[Any]], dict[str, torch.Tensor]]


def load(
    spec: DataSpec, task: Task, config: PretrainedConfig, *, samples: int | None, seed: int
) -> tuple[Any, Collator | None]:
    """The training set and its collator (None: the library's default).

    ``samples`` is the least number needed so that no epoch ends inside the measurement; None asks for
    the dataset as it is.
    """
    if spec.file is not None:
        return _from_file(spec.file, task)
    assert spec.synthetic is not None
    count = max(spec.synthetic.samples, samples or 0)
    rng = np.random.default_rng(seed)
    if task == "image-classification":
        return Images(config, count, rng), None
    from datasets import Dataset

    dataset = Dataset.from_dict(_synthetic_text(spec.synthetic, task, config, count, rng))
    dataset.set_format("pt")
    return dataset, None


def _synthetic_text(
    spec: SyntheticData, task: Task, config: PretrainedConfig, count: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Columns of shape (count, sequence_length), int64; classification labels are (count,)."""
    shape = (count, spec.sequence_length)
    # The guide draws from 100..30000, clear of BERT's special tokens; small vocabularies get what they have.
    highest = min(30_000, config.vocab_size)
    ids = rng.integers(min(100, highest // 2), highest, shape, dtype=np.int64)
    columns = {"input_ids": ids}
    if spec.padding > 0:
        lengths = rng.binomial(spec.sequence_length, 1 - spec.padding, count).clip(1)
        mask = np.arange(spec.sequence_length)[None, :] < lengths[:, None]
        columns["input_ids"] = ids = np.where(mask, ids, config.pad_token_id)
        columns["attention_mask"] = mask.astype(np.int64)
    real = columns.get("attention_mask", np.ones(shape, np.int64)) == 1
    if task == "sequence-classification":
        columns["labels"] = rng.integers(0, config.num_labels, count)
    elif task == "token-classification":
        columns["labels"] = np.where(real, rng.integers(0, config.num_labels, shape), IGNORED)
    elif task == "masked-lm":
        columns["labels"] = np.where(real & (rng.random(shape) < 0.15), ids, IGNORED)
    else:
        columns["labels"] = np.where(real, ids, IGNORED)
    return columns


class Images(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random normalised images, (channels, height, width) float32 each, with a label."""

    def __init__(self, config: PretrainedConfig, count: int, rng: np.random.Generator) -> None:
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        pool = rng.standard_normal(
            (min(count, _IMAGE_POOL), config.num_channels, height, width), dtype=np.float32
        )
        self._pool = torch.from_numpy(pool)
        self._labels = torch.from_numpy(rng.integers(0, config.num_labels, count))

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self._pool[index % len(self._pool)], "labels": self._labels[index]}


def _from_file(spec: DatasetFile, task: Task) -> tuple[Any, Collator | None]:
    """A local dataset with the user's columns renamed and, where there is text, tokenised."""
    import datasets

    if spec.format == "disk":
        dataset = datasets.load_from_disk(spec.path)
    else:
        dataset = datasets.load_dataset(spec.format, data_files=spec.path, split="train")
    if isinstance(dataset, dict):
        dataset = dataset["train"]
    if missing := [
        theirs for theirs in spec.columns.values() if theirs not in dataset.column_names
    ]:
        have = ", ".join(dataset.column_names)
        raise ValueError(f"{spec.path} has no column {', '.join(missing)}; it has {have}")
    dataset = dataset.select_columns(list(spec.columns.values()) or dataset.column_names)
    dataset = dataset.rename_columns(
        {theirs: ours for ours, theirs in spec.columns.items() if ours != theirs}
    )
    if spec.tokenizer is None:
        dataset.set_format("pt")
        return dataset, None
    return _tokenized(dataset, spec, task)


def _tokenized(dataset: Any, spec: DatasetFile, task: Task) -> tuple[Any, Collator]:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(spec.tokenizer, trust_remote_code=False)

    def tokenize(batch: dict[str, list[Any]]) -> Any:
        pair = batch.get("text_pair")
        encoded = tokenizer(batch["text"], pair, truncation=True, max_length=spec.max_length)
        if "target" in batch:
            target = tokenizer(
                text_target=batch["target"], truncation=True, max_length=spec.max_length
            )
            encoded["labels"] = target["input_ids"]
        return encoded

    text = [name for name in ("text", "text_pair", "target") if name in dataset.column_names]
    dataset = dataset.map(tokenize, batched=True, remove_columns=text)
    collators: dict[Task, Callable[[], Collator]] = {
        "token-classification": lambda: transformers.DataCollatorForTokenClassification(tokenizer),
        "causal-lm": lambda: transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False),
        "masked-lm": lambda: transformers.DataCollatorForLanguageModeling(tokenizer, mlm=True),
        "seq2seq-lm": lambda: transformers.DataCollatorForSeq2Seq(tokenizer),
    }
    return dataset, collators.get(task, lambda: transformers.DataCollatorWithPadding(tokenizer))()
