"""The user's own local file: read, its columns recognised, and tokenised if it holds text."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jobs.data_files import problem_of_path
from jobs.data_lines import CHATS, Row, chat_fault, naming_the_line
from jobs.spec import DatasetFile, Task
from jobs.tasks import SPEECH
from jobs.trial.data.class_labels import numbered
from jobs.trial.data.collators import IGNORED, Collator, PadRows, tokenizer_collator
from jobs.trial.data.decoded_images import pixel_rows
from jobs.trial.data.recognition import NUMBERS, OTHER_NAMES, Source, refusal, source_of
from jobs.trial.data.row_lengths import arrow_lists, ragged_lengths
from jobs.trial.data.tokenizing import loaded_tokenizer, rows_to_tokens, tokenizer_of
from jobs.trial.sound_shapes import masked_input

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_LANGUAGE_MODELS = ("causal-lm", "masked-lm", "seq2seq-lm")


def read(file: DatasetFile, task: Task, config: PretrainedConfig) -> tuple[Any, Collator | None]:
    """The file as a dataset and its collator (None: the default). May raise ValueError."""
    with naming_the_line(file):
        dataset, source = rows_of_file(file, task)
        if task not in _LANGUAGE_MODELS:
            dataset = numbered(dataset, file.path)
        if source == "images":
            return pixel_rows(dataset, file, config), None
        if source in ("input_ids", *NUMBERS):
            return _of_numbers(dataset, file, task, config)
        return _of_texts(dataset, file, task, source, config)


def rows_of_file(file: DatasetFile, task: Task) -> tuple[Any, Source]:
    """The file as a ``datasets.Dataset`` under our names, and the column of the task's inputs.
    Raises ValueError, in one sentence, without rows or such a column."""
    dataset = named_rows(file)
    source = source_of(task, dataset.column_names)
    if source is None:
        # The columns as the user knows them.
        theirs = [f"{theirs} (as {ours})" for ours, theirs in file.columns.items()]
        raise ValueError(refusal(file.path, task, theirs or dataset.column_names))
    if source in ("messages", "prompt"):
        _refuse_faulty_chats(dataset, file.path)
    if task == "causal-lm":
        dataset = with_joined_parts(dataset, file.path)
    return dataset, source


def with_joined_parts(dataset: Any, path: str) -> Any:
    """The rows, with a text as every content of a chat. Where it was a list of parts, it is their
    texts, because most templates cannot write a list. Raises ValueError for parts without text."""
    chats = [
        name for name, kind in dataset.features.items() if name in CHATS and not _is_of_texts(kind)
    ]

    def joined(row: Row, index: int) -> Row:
        at = f"{path}, row {index + 1:,}"
        return {name: _with_joined_parts(row[name], at) for name in chats}

    return dataset.map(joined, with_indices=True) if chats else dataset


def _is_of_texts(kind: Any) -> bool:
    """Whether a column holds texts, or chats whose contents are texts."""
    message = getattr(kind, "feature", None)
    content = message.get("content") if isinstance(message, Mapping) else kind
    return getattr(content, "dtype", None) == "string"


def _with_joined_parts(chat: Any, at: str) -> Any:
    if not isinstance(chat, list):
        return chat
    return [{**own, "content": _joined(own.get("content"), at)} for own in chat]


def _joined(content: Any, at: str) -> Any:
    if not isinstance(content, list):
        return content
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    if any(not isinstance(text, str) for text in texts):
        raise ValueError(f"{at}: a content has parts without text, and only texts are trained on")
    return "".join(map(str, texts))


def _refuse_faulty_chats(dataset: Any, path: str) -> None:
    """Raises ValueError with the first row whose chat cannot be read."""

    def is_read(row: Row, index: int) -> bool:
        for name, chat in row.items():
            if fault := chat_fault(chat):
                raise ValueError(f'{path}, row {index + 1:,}: the column "{name}" {fault}')
        return True

    # datasets keeps what a filter found, so that a file is checked once. Other columns may be
    # images, which it would decode.
    chats = [name for name in CHATS if name in dataset.column_names]
    dataset.select_columns(chats).filter(is_read, with_indices=True)


def named_rows(file: DatasetFile) -> Any:
    """The file as a ``datasets.Dataset`` with the columns that the user named, under our names.

    If the user names none, it has all columns. Of several splits it is the training set. Raises
    ValueError for a missing column, for no rows, and for a file of the system, a pipe or a device.
    """
    if problem := problem_of_path(file.path):
        raise ValueError(problem)
    with naming_the_line(file):
        dataset = _loaded(file)
    missing = [name for name in file.columns.values() if name not in dataset.column_names]
    if missing:
        have = ", ".join(dataset.column_names)
        raise ValueError(f"{file.path} has no column {', '.join(missing)}; it has {have}")
    if len(dataset) == 0:
        raise ValueError(f"{file.path} has no rows")
    dataset = dataset.select_columns(list(file.columns.values()) or dataset.column_names)
    new_names = {theirs: ours for ours, theirs in file.columns.items() if ours != theirs}
    dataset = dataset.rename_columns(new_names)
    # Collators of transformers take these names, too, but a class name must be numbered first.
    for name, ours in OTHER_NAMES.items():
        if name in dataset.column_names and ours not in dataset.column_names:
            dataset = dataset.rename_column(name, ours)
    return dataset


def _loaded(file: DatasetFile) -> Any:
    import datasets

    if file.format == "disk":
        dataset = datasets.load_from_disk(file.path)
        return dataset["train"] if isinstance(dataset, dict) else dataset
    kind = "data_dir" if file.format == "imagefolder" else "data_files"
    # pandas would take texts such as "None" and "NA" for no value.
    texts = {"keep_default_na": False, "na_values": [""]} if file.format == "csv" else {}
    return datasets.load_dataset(file.format, **{kind: file.path}, split="train", **texts)


def _of_numbers(
    dataset: Any, file: DatasetFile, task: Task, config: PretrainedConfig
) -> tuple[Any, Collator | None]:
    """Rows that hold the model's inputs already."""
    # No batch can hold texts: names, comments, the text itself.
    kinds = {name: getattr(kind, "dtype", "") for name, kind in dataset.features.items()}
    texts = [name for name, kind in kinds.items() if kind in ("string", "large_string")]
    dataset = dataset.remove_columns(texts)
    if file.max_tokens is not None:
        dataset = _cut(dataset, file.max_tokens)
    if task == "causal-lm" and "labels" not in dataset.column_names:
        # A causal language model predicts the text itself.
        dataset = dataset.map(lambda rows: {"labels": rows["input_ids"]}, batched=True)
    dataset = trainable_rows(dataset, task, file.path, getattr(config, "vocab_size", None))
    if file.tokenizer is not None and "input_ids" in dataset.column_names:
        tokenizer = loaded_tokenizer(file.tokenizer)
        return dataset, tokenizer_collator(tokenizer, task, has_labels=True)
    lengths = ragged_lengths(dataset)
    dataset.set_format("pt")
    if lengths is None:
        return dataset, None
    masked = masked_input(config) if task in SPEECH else "input_ids"
    return dataset, PadRows(getattr(config, "pad_token_id", None) or 0, masked)


def _cut(dataset: Any, tokens: int) -> Any:
    # Lists of one value for each token. Images and numbers stay as they are.
    lists = {name for name, feature in dataset.features.items() if hasattr(feature, "feature")}

    def shorter(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {name: [row[:tokens] for row in rows[name]] for name in lists - {*NUMBERS}}

    return dataset.map(shorter, batched=True)


def _of_texts(
    dataset: Any, file: DatasetFile, task: Task, source: Source, config: PretrainedConfig
) -> tuple[Any, Collator]:
    """The dataset with token ids in place of its texts, and the task's collator, which pads."""
    tokenizer = tokenizer_of(file, source)
    if task in _LANGUAGE_MODELS and "labels" in dataset.column_names:
        # A class of the text, which a language model does not predict.
        dataset = dataset.remove_columns("labels")
    tokens = rows_to_tokens(tokenizer, file, task, source)
    replaced = [name for name in dataset.column_names if name != "labels"]
    dataset = dataset.map(tokens, batched=True, remove_columns=replaced)
    dataset = trainable_rows(dataset, task, file.path, getattr(config, "vocab_size", None))
    has_labels = "labels" in dataset.column_names
    return dataset, tokenizer_collator(tokenizer, task, has_labels=has_labels)


def trainable_rows(dataset: Any, task: Task, path: str, vocabulary: int | None) -> Any:
    """A ``datasets.Dataset`` without the rows that have no token to learn, with a warning. A batch
    of such rows alone has the loss 0/0, which ruins every weight. Raises ValueError if no row is
    left, or if a token id is outside the ``vocabulary``, where that is known."""
    if "input_ids" not in dataset.column_names:
        return dataset
    plain = dataset.with_format(None)
    _check_token_ids(plain, path, vocabulary)
    kept = _learnable(plain, task)
    if kept.all():
        return dataset
    if not kept.any():
        raise ValueError(
            f"no row of {path} has a token to learn; prompts may fill data.file.max_length"
        )
    left_out = len(kept) - int(kept.sum())
    warnings.warn(
        f"{left_out} of {len(kept)} rows of {path} have no token to learn, and are left out",
        stacklevel=2,
    )
    return dataset.select(np.flatnonzero(kept))


def _learnable(dataset: Any, task: Task) -> np.ndarray:
    # A causal language model predicts each token from those before it, so not the first one.
    begin = 1 if task == "causal-lm" else 0
    targets = _mask(dataset, "input_ids", begin)
    if "labels" in dataset.column_names and (labels := _mask(dataset, "labels", begin)).size:
        targets = labels
    return _mask(dataset, "input_ids", begin=0) & targets


def _check_token_ids(dataset: Any, path: str, vocabulary: int | None) -> None:
    """Raise ValueError for a token id that the model's table of embeddings does not have."""
    if vocabulary is None:
        return
    for _, values in arrow_lists(dataset, "input_ids"):
        if len(values) and not 0 <= values.min() <= values.max() < vocabulary:
            wrong = int(values.min() if values.min() < 0 else values.max())
            raise ValueError(
                f"{path} has the token id {wrong}, and the model has a vocabulary of "
                f"{vocabulary}: take the model's own tokenizer"
            )


def _mask(dataset: Any, column: str, begin: int) -> np.ndarray:
    """Which rows have a value to learn at or after ``begin``; empty for a column without lists."""
    masks = [np.empty(0, dtype=bool)]
    for lengths, values in arrow_lists(dataset, column):
        rows = np.repeat(np.arange(len(lengths)), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        counts = (np.arange(len(values)) - starts >= begin) & (values != IGNORED)
        mask = np.zeros(len(lengths), dtype=bool)
        mask[rows[counts]] = True
        masks.append(mask)
    return np.concatenate(masks)
