"""Checks of a data file of answer pairs before the first trial: columns, answers, long prompts."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.spec import Choice, DatasetFile
from jobs.techniques import AXES
from jobs.techniques.hooks import service
from orchestrator.planning.prechecks.checkpoints import tokenizer_file
from orchestrator.planning.prechecks.data_columns import (
    lacks_column,
    missing_columns,
    read_or_problem,
)
from orchestrator.planning.prechecks.data_file import DataFile, Row
from orchestrator.planning.prechecks.lengths import Length
from orchestrator.planning.problems import Finding, KeyPath, shared_length

_ANSWERS = ("chosen", "rejected")
_COLUMNS = ("prompt", *_ANSWERS)


def reads_pairs(loop: Choice) -> bool:
    """Whether a value of the axis ``loop`` trains on pairs of answers."""
    try:
        return "preferences" in AXES["loop"].variant(loop).hooks
    except KeyError:
        return False


def pair_problems(file: DatasetFile) -> Iterator[tuple[KeyPath, str]]:
    """The problems of a file of pairs: the path of the key below ``data.file``, and a sentence."""
    data = read_or_problem(file)
    if not isinstance(data, DataFile):
        yield ("path",), data
        return
    missing = [*missing_columns(file, data), *_missing_answers(file, data)]
    yield from missing
    if file.tokenizer is None:
        yield (), "needs a tokenizer: pairs of answers are read as texts or chats"
    if not missing:
        yield from _row_problem(file, data)


def _missing_answers(file: DatasetFile, data: DataFile) -> Iterator[tuple[KeyPath, str]]:
    """A problem for each answer that the file does not have, and one for images."""
    ours = set(file.columns) or set(data.columns)
    for name in _ANSWERS:
        if name not in ours:
            yield lacks_column(data, name, "a training on pairs of answers ")
    if ours.intersection(("images", "image")):
        yield (), "has images, and pairs of answers are made from texts alone"


def _row_problem(file: DatasetFile, data: DataFile) -> Iterator[tuple[KeyPath, str]]:
    """The problem of the first row that has one."""
    for number, row in enumerate(_our_rows(file, data), 1):
        problem = service("pair_problem")(row)
        if problem:
            yield ("path",), f"row {number} {problem}"
            return


def _our_rows(file: DatasetFile, data: DataFile) -> Iterator[Row]:
    """The first rows, with the columns of pairs under our names."""
    names = file.columns or {name: name for name in data.columns}
    present = {ours: theirs for ours, theirs in names.items() if ours in _COLUMNS}
    for row in data.rows:
        yield {ours: row.get(theirs) for ours, theirs in present.items()}


def long_prompts(file: DatasetFile, lengths: Sequence[Length]) -> Iterator[Finding]:
    """What TRL would leave out, because a prompt alone has all tokens of a row.

    ``lengths`` are the numbers of tokens to which trials cut rows, each with its key. Nothing is
    found if the tokenizer is not on this machine.
    """
    data = read_or_problem(file)
    if not isinstance(data, DataFile):
        return
    rows = list(_our_rows(file, data))
    for number, row in enumerate(rows, 1):
        # The answers of some rows do not show where their common prompt ends.
        note = service("implicit_prompt_note")(row)
        if note:
            yield Finding(("data", "file", "path"), f"row {number} {note}", is_note=True)
            break
    tokenizer = _tokenizer(file.tokenizer or "")
    if tokenizer is None:
        return
    counts = [_tokens_of_prompt(row, tokenizer) for row in rows]
    for at, limit in lengths:
        too_long = [number for number, tokens in enumerate(counts, 1) if tokens >= limit]
        if too_long:
            # Without any pair nothing is left to train on.
            is_note = len(too_long) < len(counts)
            yield Finding(at, _sentence(too_long, len(counts), limit), is_note)


def _sentence(too_long: Sequence[int], rows: int, limit: int) -> str:
    share = f"{len(too_long)} of the first {rows} prompts have"
    if len(too_long) == 1:
        share = f"1 of the first {rows} prompts has"
    return (
        f"is {limit} tokens, and {share} as many or more (row {too_long[0]} first): TRL leaves out "
        "such pairs, because no token of an answer is left"
    )


def _tokens_of_prompt(row: Row, tokenizer: Any) -> int:
    """Tokens with which both answers begin, as TRL counts them; of a chat, those of its texts."""
    prompt = service("prompt_of_pair")(row)
    if isinstance(prompt, list):
        texts = [_text_of(message) for message in prompt]
        return sum(len(tokenizer.encode(text, add_special_tokens=False)) for text in texts)
    before = tokenizer.encode(prompt).ids
    lengths = []
    for name in _ANSWERS:
        answer = row[name]
        whole = answer if "prompt" not in row else prompt + answer
        lengths.append(shared_length(before, tokenizer.encode(whole).ids))
    return min(lengths)


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


@functools.cache
def _tokenizer(name: str) -> Any:
    """The tokenizer by its tokenizer.json; None if it has none on this machine.

    The package tokenizers is imported, because transformers would take seconds.
    """
    path = tokenizer_file(name)
    if path is None or importlib.util.find_spec("tokenizers") is None:
        return None
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # the package raises no narrower class
        return None
    # A saved tokenizer may cut and pad, which transformers switches off.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
