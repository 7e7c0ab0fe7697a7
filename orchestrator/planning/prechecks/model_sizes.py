"""What must fit the model: the lengths of rows, the ids of tokens, and the weights it loads."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from jobs.spec import DatasetFile
from orchestrator.planning.prechecks.checkpoints import fast_tokenizer
from orchestrator.planning.prechecks.data_columns import read_or_problem
from orchestrator.planning.prechecks.data_file import DataFile
from orchestrator.planning.prechecks.lengths import sequence_lengths
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.planning.problems import Remark
from orchestrator.planning.settings import SweepConfig

_OF_WEIGHTS = ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings")
"""Sizes that are those of tensors. The last one is so only where there is a table of positions."""
_TEXTS = ("text", "messages", "prompt", "completion", "chosen", "rejected")


def size_remarks(config: SweepConfig, configuration: ModelConfiguration) -> Iterator[Remark]:
    """What is too long or too large for the model, and sizes that its weights do not have."""
    if config.model.name_or_path is not None:
        yield from _other_weights(config, configuration)
    yield from _long_sequences(config, configuration)
    if config.data.file is not None:
        yield from _foreign_tokens(config, config.data.file, configuration)


def _other_weights(config: SweepConfig, configuration: ModelConfiguration) -> Iterator[Remark]:
    saved = ModelConfiguration.of(replace(config.model, config={}))
    for size in _OF_WEIGHTS:
        own, asked = saved.value(size), configuration.value(size)
        is_free = size == "max_position_embeddings" and saved.usable_positions() is None
        if own is not None and own != asked and not is_free:
            message = f"{size} is {asked}, and the checkpoint has weights for {own}; remove it"
            yield Remark(("model", "config"), message)


def _long_sequences(config: SweepConfig, configuration: ModelConfiguration) -> Iterator[Remark]:
    usable, trained = configuration.usable_positions(), configuration.trained_positions()
    name = configuration.model_type
    for at, length in sequence_lengths(config):
        if usable is not None and length > usable:
            message = f"is {length} tokens, and {name} has positions for {usable}; give at most"
            yield Remark(at, f"{message} {usable}{_or_larger(config, 'max_position_embeddings')}")
        if trained is not None and length > trained:
            message = f"is {length} tokens, and {name} was made for {trained}; it runs all the same"
            yield Remark(at, message, is_note=True)


def _foreign_tokens(
    config: SweepConfig, file: DatasetFile, configuration: ModelConfiguration
) -> Iterator[Remark]:
    """A tokenizer with ids that the model's table of embeddings lacks. It is a mistake if the first
    rows have one, and else a note: some tokenizers have ids that no text of the user's needs."""
    tokenizer, vocabulary = fast_tokenizer(file.tokenizer or ""), configuration.vocabulary
    if tokenizer is None or vocabulary is None or tokenizer.get_vocab_size() <= vocabulary:
        return
    ids = (max(encoding.ids, default=0) for encoding in tokenizer.encode_batch(_texts(file)))
    message = (
        f"has {tokenizer.get_vocab_size()} token ids, and the model has a vocabulary of "
        f"{vocabulary}: take the model's own tokenizer{_or_larger(config, 'vocab_size')}"
    )
    is_note = max(ids, default=0) < vocabulary
    yield Remark(("data", "file", "tokenizer"), message, is_note)


def _or_larger(config: SweepConfig, size: str) -> str:
    """The other remedy, which a model with weights does not have."""
    return "" if config.model.name_or_path else f", or set a larger model.config.{size}"


def _texts(file: DatasetFile) -> list[str]:
    """The texts of the first rows, of chats those of their messages."""
    data = read_or_problem(file)
    columns = data.values(file.columns) if isinstance(data, DataFile) else {}
    values = itertools.chain.from_iterable(columns.get(name, ()) for name in _TEXTS)
    return [text for value in values for text in _of_value(value) if isinstance(text, str)]


def _of_value(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    return [item.get("content") if isinstance(item, dict) else item for item in value]
