"""Flags: what a reader should know before trusting a row. Each is a kind and a number, no text."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class FlagKind(enum.StrEnum):
    """What a flag is about. The comment after each kind says what ``Flag.value`` is."""

    UNSTABLE = "unstable"  # half the 95 % interval of the mean step, relative; None: one step
    HOST_BOUND = "host_bound"  # share of micro-batches after which the GPU ran out of work
    DATA_BOUND = "data_bound"  # share of the time in which the GPU waited for its data
    LAUNCH_BOUND = "launch_bound"  # share of the time in phases limited by kernel launches
    THRASHING = "thrashing"  # times the allocator had to flush its cache
    NEW_LENGTHS = "new_lengths"  # share of an epoch's time in which new lengths are prepared for
    SHARED_PROCESSES = "shared_processes"  # other processes on the GPU
    SHARED_BEFORE = "shared_before"  # bytes in use on the GPU before the trial
    SHARED_DURING = "shared_during"  # bytes neither of the context nor of the allocator
    LOSS_MISMATCH = "loss_mismatch"  # mean loss divided by the reference's
    LOSS_TIMES_ACCUMULATION = "loss_times_accumulation"  # the same; it equals the accumulation
    LOSS_NOT_FINITE = "loss_not_finite"  # the first step with such a loss, from 1
    GRADIENTS_DIFFER = "gradients_differ"  # relative error of the worst tensor
    ACCUMULATION_SUSPECT = "accumulation_suspect"  # loss ratio of another accumulated row
    NOT_QUANTIZED = "not_quantized"  # share of the frozen layers' weights in 16 bits or more
    ROWS_LEFT_OUT = "rows_left_out"  # share of the rows that are not trained on
    CANNOT_EVALUATE = "cannot_evaluate"  # none
    CANNOT_SAVE = "cannot_save"  # none
    CANNOT_LOAD_BEST = "cannot_load_best"  # none
    CANNOT_RESUME = "cannot_resume"  # none
    CANNOT_MERGE = "cannot_merge"  # none


_KINDS = frozenset(kind.value for kind in FlagKind)

SHARED = frozenset({FlagKind.SHARED_PROCESSES, FlagKind.SHARED_BEFORE, FlagKind.SHARED_DURING})
"""Another process used the GPU."""

LOSS = frozenset(
    kind for kind in FlagKind if kind.startswith("loss") or kind is FlagKind.ACCUMULATION_SUSPECT
)
"""The row trains something else than its reference."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One fact about a row; ``FlagKind`` says what ``value`` is."""

    kind: FlagKind
    value: float | None = None


def flag_columns(flags: Sequence[Flag]) -> dict[str, list[Any]]:
    """Flags as the values of the two columns that hold them: ``flags`` and ``flag_values``."""
    # A count becomes a float, too: the column has one type.
    values = [None if flag.value is None else float(flag.value) for flag in flags]
    return {"flags": [flag.kind.value for flag in flags], "flag_values": values}


def flags_of(row: Mapping[str, Any]) -> tuple[Flag, ...]:
    """The flags in a row or a record's measurements; none if it has no such columns. Kinds of
    another version are left out (``unknown_kinds``). Raises ValueError if the columns have not as
    many kinds as values."""
    # A foreign row lacks the columns; a table's row without measurements has nulls in them.
    kinds = row.get("flags") or ()
    values = row.get("flag_values") or ()
    pairs = zip(kinds, values, strict=True)
    return tuple(Flag(FlagKind(kind), value) for kind, value in pairs if kind in _KINDS)


def unknown_kinds(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The kinds of flags in rows that this version does not know, in alphabetical order."""
    return sorted({kind for row in rows for kind in row.get("flags") or ()} - _KINDS)


def has_any(flags: Iterable[Flag], kinds: frozenset[FlagKind]) -> bool:
    return any(flag.kind in kinds for flag in flags)
