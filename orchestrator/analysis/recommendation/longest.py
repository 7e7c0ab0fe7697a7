"""The longest context that trains within a memory budget, for each set of techniques."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from jobs.spec import PLAIN, Choice, TrainingRecipe
from jobs.techniques import BATCH_AXES
from jobs.techniques.sample_kind import without_length
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.follow_up_results import CapCheck, decisive_check
from orchestrator.analysis.grouping import grouped

LENGTH_AXIS = "sequence_length"
Choices = Mapping[str, Choice]
"""Axis -> value."""
TechniqueChoices = tuple[tuple[str, str, Choice], ...]
"""(axis, type of the value, value) for every axis but the batch's and the length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LongestContext:
    """The longest samples that one set of techniques trains within a budget."""

    tokens: int
    """Tokens of a sample; those of the longest row, where no row was as long as the length."""
    configuration: Configuration
    """The fastest configuration with this length that fits."""
    tokens_per_second: float | None
    """Tokens without padding, per second; None if the table does not have the figure."""
    check: CapCheck | None
    """The cap check that it passed. None if it was not checked: its fit is inferred."""
    next_tokens: int | None
    """The shortest longer length that was tried. It does not fit. None if none was tried."""


def longest_contexts(
    configurations: Iterable[Configuration],
    memory_bytes: float,
    recipe: TrainingRecipe = PLAIN,
    checks: Sequence[CapCheck] = (),
    out_of_memory: Iterable[Choices] = (),
    *,
    all_recipes: bool = False,
) -> tuple[LongestContext, ...]:
    """The longest context that fits the budget of each set of techniques, the longest first.

    Of the ``configurations`` those with ``recipe`` count at any length, with ``all_recipes`` all.
    ``out_of_memory``: choices of trials that failed on the whole GPU.
    """
    wanted = without_length(recipe)
    ranked = [
        own
        for own in configurations
        if (all_recipes or without_length(own.training_recipe) == wanted)
        and length_of(own.choices) is not None
        and not own.trains_wrongly
    ]
    groups = grouped(ranked, lambda own: _techniques(own.choices))
    failed = grouped(out_of_memory, _techniques)
    longest = [
        _longest_of(members, memory_bytes, checks, failed.get(techniques, ()))
        for techniques, members in groups.items()
    ]
    order = attrgetter("tokens", "configuration.samples_per_second")
    return tuple(sorted(filter(None, longest), key=order, reverse=True))


def length_of(choices: Choices) -> int | None:
    """Tokens per sample; None if the run does not vary the length."""
    choice = choices.get(LENGTH_AXIS)
    # If one value of a column is a name, the table stores the integers as text, too.
    if choice is None or not str(choice).isdecimal():
        return None
    return int(str(choice))


def _trained_length(configuration: Configuration) -> int:
    """Tokens of the longest samples trained: rows are cut to the length, and may all be shorter."""
    length = length_of(configuration.choices) or 0
    return min(length, int(configuration.row.get("longest_row_tokens") or length))


def _longest_of(
    members: Iterable[Configuration],
    memory_bytes: float,
    checks: Sequence[CapCheck],
    failed: Iterable[Choices],
) -> LongestContext | None:
    """``failed`` are the choices of this set's trials that ran out of memory."""
    lengths = [length_of(choices) or 0 for choices in failed]
    best: LongestContext | None = None
    # At one length, samples per second and tokens per second have the same order.
    for own in sorted(members, key=_length_then_speed, reverse=True):
        tokens = _trained_length(own)
        check = decisive_check(checks, own.trial_ids, memory_bytes)
        if own.memory_bytes > memory_bytes or (check is not None and check.fails):
            lengths.append(tokens)
        elif best is None:
            best = LongestContext(
                tokens=tokens,
                configuration=own,
                tokens_per_second=own.real_tokens_per_second,
                check=check,
                next_tokens=min((length for length in lengths if length > tokens), default=None),
            )
    return best


def _length_then_speed(configuration: Configuration) -> tuple[int, float, int]:
    tokens = _trained_length(configuration)
    return tokens, configuration.samples_per_second, -configuration.memory_bytes


def _techniques(choices: Choices) -> TechniqueChoices:
    return tuple(
        (axis, type(value).__name__, value)
        for axis, value in choices.items()
        if axis not in (*BATCH_AXES, LENGTH_AXIS)
    )
