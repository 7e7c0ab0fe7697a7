"""The longest context that trains in each memory budget, for each set of techniques."""

from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.recommendation import LongestContext
from orchestrator.reporting import configurations as shared
from orchestrator.reporting.configurations import memory_meaning, row_of
from orchestrator.reporting.content import Column, Content, Format, Row, Table
from orchestrator.units import memory, number

NOT_VARIED = "no sequence length was varied: give axes.sequence_length a list of lengths"
INFERRED = "by its uncapped peak"
_LENGTH = Column(key="sequence_length", heading="longest", format=Format.COUNT)
_NEXT = Column(key="next_tokens", heading="did not fit", format=Format.COUNT)
_FITS = Column(key="fits", heading="fits")


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each budget and set of techniques; None if all samples have the same length."""
    lengths = {item.choices.get("sequence_length") for item in results.configurations}
    if len(lengths) < 2:
        return None
    rows: list[Row] = []
    shown = []
    for pick in results.budget_picks:
        for index, context in enumerate(results.longest(pick.budget_bytes)):
            row = _row(dataset, results, context, pick.budget_bytes)
            rows.append({**row, "budget": None if index else pick.budget_bytes})
            shown.append(context.configuration)
    figures = (shared.BUDGET, _LENGTH, shared.TOKENS, shared.MEMORY, _NEXT)
    columns = (*figures, shared.CONFIGURATION, _FITS, shared.TRIAL)
    return Content(
        title="Longest context in each memory budget",
        text=(
            "Tokens of the longest samples that train, and tokens without padding per second.",
            "Speeds of unequal lengths are different workloads, and are not ranked together.",
        ),
        tables=(Table(columns=columns, rows=tuple(rows)),),
        notes=shared.mark_notes(results, shown),
    )


def lines(
    dataset: Dataset, contexts: Sequence[LongestContext], memory_bytes: int | None
) -> Iterator[str]:
    """The answer to ``recommend --longest`` as text."""
    results = dataset.main
    if results is None or not dataset.axes.get("sequence_length"):
        yield f"{dataset.name}: {NOT_VARIED}"
        return
    within = "all memory" if memory_bytes is None else memory(memory_bytes)
    yield f"{dataset.name} on {results.hardware}: longest context within {within}"
    yield f"  memory: {memory_meaning(results)}"
    if not contexts:
        lengths = {item.choices.get("sequence_length") for item in results.configurations}
        yield f"  {NOT_VARIED if lengths == {'data'} else 'nothing measured fits'}"
    for context in contexts:
        # 32,768 tokens: batch 1 · checkpoint: 9,870 tokens/s, 22.1 GiB, trial 0123456789ab
        configuration = context.configuration
        figures = [memory(configuration.memory_bytes), f"trial {configuration.trial_ids[0]}"]
        if context.tokens_per_second is not None:
            figures.insert(0, f"{number(context.tokens_per_second)} tokens/s")
        label = dataset.pick_label(configuration)
        yield f"  {context.tokens:,} tokens: {label}: {', '.join(figures)}"
        for note in _notes(results, context, memory_bytes):
            yield f"    {note}"


def to_json(
    dataset: Dataset, contexts: Sequence[LongestContext], memory_bytes: int | None
) -> dict[str, Any]:
    """The answer as plain JSON values: tokens, bytes, tokens per second."""
    results = dataset.main
    return {
        "run": dataset.name,
        "hardware": results and results.hardware,
        "memory_column": results and results.memory_column,
        "memory_bytes": memory_bytes,
        "longest": [_row(dataset, results, own, memory_bytes) for own in contexts if results],
    }


def _row(
    dataset: Dataset, results: EnvironmentResults, context: LongestContext, memory_bytes: int | None
) -> dict[str, Any]:
    return {
        **row_of(dataset, results, context.configuration),
        "configuration": dataset.pick_label(context.configuration),
        "micro_batch": context.configuration.row["micro_batch"],
        "sequence_length": context.tokens,
        "real_tokens_per_second": context.tokens_per_second,
        "next_tokens": context.next_tokens,
        "fits": _fit(results, context, memory_bytes),
        "verified": context.check is not None,
        "cap_check": shared.check_to_json(context.check),
    }


def _fit(results: EnvironmentResults, context: LongestContext, memory_bytes: int | None) -> str:
    if context.check is not None:
        return "verified"
    is_whole = memory_bytes is None or memory_bytes >= results.device_bytes
    return "whole GPU" if is_whole else INFERRED


def _notes(
    results: EnvironmentResults, context: LongestContext, memory_bytes: int | None
) -> Iterator[str]:
    check = context.check
    if check is not None:
        cap = memory(check.budget_bytes)
        yield f"verified under a memory cap of {cap} (trial {check.trial_id})"
    elif _fit(results, context, memory_bytes) == INFERRED:
        yield shared.not_verified(memory_bytes)
    if context.next_tokens is None:
        yield "no longer one was tried, so the limit may be higher"
    else:
        yield f"the next length that was tried, {context.next_tokens:,} tokens, does not fit"
