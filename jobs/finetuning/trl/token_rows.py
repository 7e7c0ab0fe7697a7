"""Rows of token ids for a library that pads them itself. train.py gets copies of the functions."""

from typing import Any


def without_padding(row: dict[str, Any]) -> dict[str, Any]:
    """The tokens and labels of a row at the positions where its attention mask is 1."""
    from itertools import compress

    mask = row["attention_mask"]
    return {name: list(compress(row[name], mask)) for name in row if name != "attention_mask"}


def padding_tokenizer(pad_token_id: int) -> Any:
    """A tokenizer with only the padding token, which has the model's id."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = Tokenizer(models.WordLevel({"<pad>": pad_token_id}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=vocabulary, pad_token="<pad>")
