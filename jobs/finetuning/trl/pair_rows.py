"""Rows of a prompt with a chosen and a rejected answer: mistakes in them, and implicit prompts."""

import itertools
from collections.abc import Mapping
from typing import Any

ANSWERS = ("chosen", "rejected")
"""Columns that every row of pairs has."""


def pair_problem(row: Mapping[str, Any]) -> str:
    """What is wrong with a row of a prompt and two answers; empty if nothing is. A row without a
    prompt has it at the beginning of both answers."""
    names = [name for name in ("prompt", *ANSWERS) if name in row]
    kinds = set()
    for name in names:
        value = row[name]
        # A prompt may be an empty text. An empty answer has no token to learn.
        if value is None or (not value and (name, value) != ("prompt", "")):
            return f"has no {_spoken(name)}"
        if not isinstance(value, str) and not _is_chat(value):
            return f"has a {_spoken(name)} that is neither a text nor a list of messages"
        kinds.add(type(value))
    if len(kinds) > 1:
        return "has texts and messages; prompt and answers must be of one kind"
    first = [row[name][0] for name in ANSWERS]
    if "prompt" not in row and list in kinds and first[0] != first[1]:
        return "has no prompt: its two chats begin with different messages"
    return ""


def implicit_prompt_note(row: Mapping[str, Any]) -> str:
    """What is unusual about a prompt that is only in the answers; empty if nothing is."""
    if "prompt" in row:
        return ""
    shorter = min(row["chosen"], row["rejected"], key=len)
    if row["chosen"][: len(shorter)] != row["rejected"][: len(shorter)]:
        return ""
    return "has an answer with which the other begins, so TRL takes all but its end as the prompt"


def _spoken(name: str) -> str:
    """``chosen answer`` for the column ``chosen``; a prompt is a prompt."""
    return f"{name} answer" if name in ANSWERS else name


def _is_chat(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(item, Mapping) and "role" in item for item in value)


def prompt_of_pair(row: Mapping[str, Any]) -> Any:
    """The prompt of a row without mistakes: its own, or what both answers begin with. As
    ``trl.extract_prompt`` does, a text's prompt ends before a space."""
    if "prompt" in row:
        return row["prompt"]
    chosen, rejected = row["chosen"], row["rejected"]
    # TRL leaves at least the last letter or message of the shorter one.
    most = min(len(chosen), len(rejected)) - 1
    pairs = zip(chosen[:most], rejected[:most], strict=True)
    length = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    if length and chosen[length - 1] == " ":
        length -= 1
    return chosen[:length]
