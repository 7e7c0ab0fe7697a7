"""Whether our configuration can express an example of axolotl: our own planner decides."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.plan import plan
from tests.benchmarks.breadth.draft import Draft
from tests.benchmarks.breadth.example import Example
from tests.benchmarks.breadth.ignored import ignore_what_does_not_matter
from tests.benchmarks.breadth.models import translate_model
from tests.benchmarks.breadth.not_offered import note_what_is_not_offered
from tests.benchmarks.breadth.rows import translate_rows
from tests.benchmarks.breadth.several_gpus import key_for_several_gpus
from tests.benchmarks.breadth.steps import translate_steps
from tests.benchmarks.breadth.weights import translate_weights


class Answer(StrEnum):
    """What came of an example."""

    EXPRESSED = "expressed"
    LEFT = "left"
    SEVERAL_GPUS = "several_gpus"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The answer for one example, and why it is not expressed."""

    name: str
    answer: Answer
    reasons: tuple[str, ...] = ()


def judged(example: Example) -> Verdict:
    """The verdict on one example."""
    key = key_for_several_gpus(example)
    if key:
        return Verdict(name=example.name, answer=Answer.SEVERAL_GPUS, reasons=(key,))
    draft = translated(example)
    reasons = [*draft.missing]
    for unknown in example.unused():
        reasons.append(f"unknown key: {unknown}")
    reasons += _refusals(draft)
    answer = Answer.LEFT if reasons else Answer.EXPRESSED
    return Verdict(name=example.name, answer=answer, reasons=tuple(dict.fromkeys(reasons)))


def translated(example: Example) -> Draft:
    """Our configuration of an example for one GPU, and what it cannot say."""
    draft = Draft()
    translate_model(example, draft)
    translate_weights(example, draft)
    translate_rows(example, draft)
    translate_steps(example, draft)
    note_what_is_not_offered(example, draft)
    ignore_what_does_not_matter(example)
    return draft


def _refusals(draft: Draft) -> Iterator[str]:
    """What our planner says against a configuration; nothing if it plans its one trial."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "example.yaml"
        path.write_text(yaml.safe_dump(draft.document()), encoding="utf-8")
        try:
            config = load_config(path, trust_remote_code=True)
        except ConfigError as error:
            for problem in error.problems:
                # What follows lists the choices.
                yield f"{problem.key}: {problem.message.partition(';')[0]}"
            return
    planned = plan(config)
    for record in planned.ruled_out:
        yield f"combination: {record.reason}"


def counts(verdicts: Iterable[Verdict]) -> Counter[Answer]:
    """Answer -> number of examples."""
    return Counter(verdict.answer for verdict in verdicts)


def reasons(verdicts: Sequence[Verdict]) -> list[tuple[str, int, int]]:
    """Reason, examples that it leaves out, and those of them that have no other; most first."""
    every: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for verdict in verdicts:
        if verdict.answer is Answer.LEFT:
            every.update(verdict.reasons)
            if len(verdict.reasons) == 1:
                alone.update(verdict.reasons)
    ranked = sorted(every, key=lambda reason: (-every[reason], reason))
    return [(reason, every[reason], alone[reason]) for reason in ranked]
