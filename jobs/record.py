"""What came of one trial: a ``TrialRecord`` with exactly one ``Outcome``; it travels as JSON."""

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from jobs.anatomy_record import Anatomy
from jobs.flags import Flag, flags_of
from jobs.spec import TrialSpec

SCHEMA_VERSION = 2
"""Version of records, tables and run.json."""

ArrowType = Literal[
    "int64", "float64", "string", "bool", "timestamp", "list<double>", "list<string>"
]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table. ``doc`` is its meaning in a line. An empty ``unit``: it has none."""

    name: str
    type: ArrowType
    doc: str
    unit: str = ""

    @classmethod
    def nbytes(cls, name: str, doc: str) -> Self:
        return cls(name, "int64", doc, unit="B")

    @classmethod
    def seconds(cls, name: str, doc: str) -> Self:
        return cls(name, "float64", doc, unit="s")

    @classmethod
    def rate(cls, name: str, doc: str) -> Self:
        return cls(name, "float64", doc, unit="1/s")

    @classmethod
    def count(cls, name: str, doc: str) -> Self:
        return cls(name, "int64", doc)

    @classmethod
    def number(cls, name: str, doc: str) -> Self:
        return cls(name, "float64", doc)

    @classmethod
    def text(cls, name: str, doc: str) -> Self:
        return cls(name, "string", doc)


class Outcome(enum.StrEnum):
    """How a trial ended. Only ``ok`` has measurements to rank; everything else has a reason."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"

    @property
    def is_final(self) -> bool:
        """Whether a resumed run leaves the trial as it is. It runs skipped trials again."""
        return self is not Outcome.SKIPPED


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """How a trial was run: what its own process cannot know. The slot fills it, once."""

    started_at: float = 0.0
    """Unix time in seconds; 0: it never started."""
    slot_seconds: float = 0.0
    """From the process's start to its result, without idle waits; attempts of a trial add up."""
    isolation: str = ""
    """How the process was made: "fork" from the preloaded parent, or "fresh"."""
    isolation_fallback: str = ""
    """Why the process was not forked, although it should have been; empty otherwise."""
    slot_pid: int | None = None
    """Process id of the preloaded parent."""
    node: str = ""
    cpus: int | None = None
    """CPU cores given to the trial, and the number of its OMP threads."""
    host_memory_bytes: int | None = None
    """Host memory reserved for the trial."""
    log: str = ""
    """The end of what the trial printed; in a run folder only if the trial did not end well."""
    log_file: str = ""
    """Path of the log, relative to the run folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One row of the table, with its per-step detail."""

    spec: TrialSpec
    outcome: Outcome
    reason: str = ""
    """One sentence: what the library said, or what ruled the trial out. Empty for an ok trial."""
    rule: str = ""
    """The name of the rule that ruled the trial out or skipped it."""
    phase: str = ""
    """Where the trial was when it failed: context, model, data, first_step, steps, profile ..."""
    measurements: Mapping[str, Any] = field(default_factory=dict)
    """Column name -> value."""
    steps: Mapping[str, list[float]] = field(default_factory=dict)
    """Series (``step_seconds``, ``loss`` ...) -> a value per optimizer step, warm-up included."""
    anatomy: Anatomy | None = None
    """Where memory and time went; None if the trial was not profiled."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """``jobs.node.environment.describe``; rows of different environments are not compared."""
    provenance: Provenance = Provenance()
    schema_version: int = SCHEMA_VERSION

    @property
    def trial_id(self) -> str:
        return self.spec.trial_id

    @property
    def started_at(self) -> float:
        """Unix time in seconds; 0: it never started."""
        return self.provenance.started_at

    @property
    def slot_seconds(self) -> float:
        """Slot time of the trial in seconds; see ``Provenance``."""
        return self.provenance.slot_seconds

    @property
    def flags(self) -> tuple[Flag, ...]:
        return flags_of(self.measurements)


def skipped(spec: TrialSpec, rule: str, reason: str) -> TrialRecord:
    """The record of a planned trial that was not run."""
    return TrialRecord(spec=spec, outcome=Outcome.SKIPPED, rule=rule, reason=reason)


def unsupported(spec: TrialSpec, rule: str, reason: str) -> TrialRecord:
    """The record of a trial that cannot run: a rule forbids it, or the node lacks something."""
    return TrialRecord(spec=spec, outcome=Outcome.UNSUPPORTED, rule=rule, reason=reason)


def with_provenance(record: TrialRecord, **known: Any) -> TrialRecord:
    """The record with more of its provenance known."""
    return dataclasses.replace(record, provenance=dataclasses.replace(record.provenance, **known))
