"""Checks of a data file of answer pairs before the first trial: columns, answers, long prompts."""

import itertools
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from jobs.spec import Choice, DatasetFile
from jobs.techniques import AXES
from jobs.techniques.hooks import service
from orchestrator.planning.prechecks.checkpoints import fast_tokenizer
from orchestrator.planning.prechecks.data_columns import (
    lacks_column,
    missing_columns,
    read_or_problem,
)
from orchestrator.planning.prechecks.data_file import DataFile, Row
from orchestrator.planning.prechecks.lengths import Length
from orchestrator.planning.problems import KeyProblems, Remark, shared_length

_ANSWERS = ("chosen", "rejected")
_COLUMNS = ("prompt", *_ANSWERS)


def reads_pairs(loop: Choice) -> bool:
    """Whether a value of the axis ``loop`` trains on pairs of answers."""
    try:
        return "preferences" in AXES["loop"].variant(loop).hooks
    except KeyError:
        return False


def pair_problems(file: DatasetFile) -> KeyProblems:
    """The problems of a file of pairs, with paths below ``data.file``."""
    data = read_or_problem(file)
    if not isinstance(data, DataFile):
        yield ("path",), data
        return
    missing = list(missing_columns(file, data))
    ours = data.values(file.columns)
    for name in _ANSWERS:
        if name not in ours:
            missing.append(lacks_column(data, name, "a training on pairs of answers "))
    if {"images", "image"} & ours.keys():
        missing.append(((), "has images, and pairs of answers are made from texts alone"))
    yield from missing
    if file.tokenizer is None:
        yield (), "needs a tokenizer: pairs of answers are read as texts or chats"
    if not missing:
        problems = enumerate(map(service("pair_problem"), _our_rows(file, data)), 1)
        # The first row that has one.
        for number, problem in itertools.islice(filter(itemgetter(1), problems), 1):
            yield ("path",), f"row {number} {problem}"


def _our_rows(file: DatasetFile, data: DataFile) -> list[Row]:
    """The first rows, with the columns of pairs under our names."""
    columns = data.values(file.columns)
    present = [name for name in columns if name in _COLUMNS]
    rows = zip(*(columns[name] for name in present), strict=True)
    return [dict(zip(present, row, strict=True)) for row in rows]


def long_prompts(file: DatasetFile, lengths: Sequence[Length]) -> Iterator[Remark]:
    """What TRL would leave out, because a prompt alone has all tokens of a row. ``lengths`` are the
    numbers of tokens to which trials cut rows, each with its key. Nothing is found if the tokenizer
    is not on this machine."""
    data = read_or_problem(file)
    if not isinstance(data, DataFile):
        return
    rows = _our_rows(file, data)
    for number, row in enumerate(rows, 1):
        # The answers of some rows do not show where their common prompt ends.
        note = service("implicit_prompt_note")(row)
        if note:
            yield Remark(("data", "file", "path"), f"row {number} {note}", is_note=True)
            break
    tokenizer = fast_tokenizer(file.tokenizer or "")
    if tokenizer is None:
        return
    counts = [_tokens_of_prompt(row, tokenizer) for row in rows]
    for at, limit in lengths:
        too_long = [number for number, tokens in enumerate(counts, 1) if tokens >= limit]
        if too_long:
            # Without any pair nothing is left to train on.
            is_note = len(too_long) < len(counts)
            yield Remark(at, _sentence(too_long, len(counts), limit), is_note)


def _sentence(too_long: Sequence[int], rows: int, limit: int) -> str:
    prompts = "prompts have" if len(too_long) > 1 else "prompts has"
    return (
        f"is {limit} tokens, and {len(too_long)} of the first {rows} {prompts} as many or more (row"
        f" {too_long[0]} first): TRL leaves out such pairs, because no token of an answer is left"
    )


def _tokens_of_prompt(row: Row, tokenizer: Any) -> int:
    """Tokens with which both answers begin, as TRL counts them; of a chat, those of its texts."""
    prompt = service("prompt_of_pair")(row)
    if isinstance(prompt, list):
        contents = [message.get("content") for message in prompt]
        texts = [content for content in contents if isinstance(content, str)]
        return sum(len(tokenizer.encode(text, add_special_tokens=False)) for text in texts)
    before = tokenizer.encode(prompt).ids
    start = prompt if "prompt" in row else ""
    whole = [tokenizer.encode(start + row[name]).ids for name in _ANSWERS]
    return min(shared_length(before, ids) for ids in whole)
