"""A tokenizer of a few words, made on the spot: no Hub, no download."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORDS = ["[PAD]", "[UNK]", "[END]", "user:", "assistant:", "system:", "good", "bad", "film", "a"]
WORDS += ["very", "the", "was", "yes", "no"]

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }} [END] "
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
"""Each message as ``role: content [END]``."""


def word_tokenizer(words: Sequence[str] = WORDS, **special_tokens: Any) -> Any:
    """A tokenizer that splits at blanks; ``special_tokens`` replace the usual ones."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "[END]", **special_tokens}
    special = {name: token for name, token in special.items() if token is not None}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def save_word_tokenizer(
    folder: Path,
    *,
    chat_template: str | None = None,
    words: Sequence[str] = WORDS,
    **special_tokens: Any,
) -> str:
    """Save such a tokenizer; returns its folder."""
    saved = word_tokenizer(words, **special_tokens)
    saved.chat_template = chat_template
    saved.save_pretrained(folder)
    return str(folder)
