"""Checks of answer pairs before the first trial: columns and answers; prompts without an answer."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from jobs.spec import Choice, DatasetFile
from jobs.techniques import AXES
from jobs.techniques.hooks import service
from orchestrator.planning.prechecks.checkpoints import chat_template, fast_tokenizer
from orchestrator.planning.prechecks.data_columns import (
    lacks_column,
    missing_columns,
    read_or_problem,
)
from orchestrator.planning.prechecks.data_file import DataFile, Row
from orchestrator.planning.prechecks.lengths import Length
from orchestrator.planning.problems import KeyProblems, Remark, shared_length

_ANSWERS = ("chosen", "rejected")
_COLUMNS = ("prompt", *_ANSWERS, "completion")


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


def long_prompts(
    file: DatasetFile, lengths: Sequence[Length], *, is_pairs: bool
) -> Iterator[Remark]:
    """Rows that are left out, because a prompt alone has all tokens of a row. ``lengths`` are the
    numbers of tokens to which trials cut rows, each with its key. Nothing is found if the tokenizer
    is not on this machine."""
    data = read_or_problem(file)
    if not isinstance(data, DataFile):
        return
    rows = _our_rows(file, data)
    names = data.values(file.columns).keys()
    # Without pairs, these columns are read before a prompt.
    if not is_pairs and ("completion" not in names or names & {"messages", "input_ids"}):
        return
    # The answers of some rows do not show where their common prompt ends.
    notes = enumerate(map(service("implicit_prompt_note"), rows if is_pairs else ()), 1)
    for number, note in itertools.islice(filter(itemgetter(1), notes), 1):
        yield Remark(("data", "file", "path"), f"row {number} {note}", is_note=True)
    tokenizer = fast_tokenizer(file.tokenizer or "")
    if tokenizer is None:
        return
    counts = [_tokens_of_prompt(row, tokenizer, file.tokenizer or "") for row in rows]
    for at, limit in lengths:
        too_long = [number for number, tokens in enumerate(counts, 1) if tokens >= limit]
        if too_long:
            # Without any row nothing is left to train on.
            is_note = len(too_long) < len(counts)
            yield Remark(at, _sentence(too_long, len(counts), limit), is_note)


def _sentence(too_long: Sequence[int], rows: int, limit: int) -> str:
    prompts = "prompts have" if len(too_long) > 1 else "prompts has"
    return (
        f"is {limit} tokens, and {len(too_long)} of the first {rows} {prompts} as many or more (row"
        f" {too_long[0]} first): such rows are left out, because no token of an answer is left"
    )


def _tokens_of_prompt(row: Row, tokenizer: Any, name: str) -> int:
    """Tokens that are the same with every answer, as TRL counts them; of a chat that
    its template does not take here, those of its texts."""
    prompt = service("prompt_of_pair")(row)
    answers = [row[name] for name in _COLUMNS[1:] if name in row]
    if not all(isinstance(text, str) for text in (prompt, *answers)):
        messages = prompt if isinstance(prompt, list) else [{"content": prompt}]
        contents = [message.get("content") for message in messages]
        texts = [content for content in contents if isinstance(content, str)]
        template = chat_template(name)
        # A template may raise anything; a trial says what.
        with contextlib.suppress(Exception):
            texts = [template(messages=messages)] if template else texts
        return sum(len(tokenizer.encode(text, add_special_tokens=False)) for text in texts)
    before = tokenizer.encode(prompt).ids
    start = prompt if "prompt" in row else ""
    whole = [tokenizer.encode(start + answer).ids for answer in answers]
    return min(shared_length(before, ids) for ids in whole)
