"""What came of one trial: a ``TrialRecord`` with exactly one ``Outcome``, plain data that travels as JSON."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.anatomy_record import Anatomy, anatomy_from_json
from jobs.spec import TrialSpec, spec_from_json, to_json

ArrowType = Literal[
    "int64", "float64", "string", "bool", "timestamp", "list<double>", "list<string>"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of the table: its name, Arrow type, unit ("" where none applies) and meaning in a line."""

    name: str
    type: ArrowType
    unit: str = ""
    doc: str


class Outcome(enum.StrEnum):
    """How a trial ended. Everything but ``ok`` has a reason; only the first carries measurements to rank."""

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
        """A resumed run does not repeat it. Skipped work is still to be done."""
        return self is not Outcome.SKIPPED


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One row of the table, with its per-step detail."""

    spec: TrialSpec
    outcome: Outcome
    reason: str = ""
    """One sentence: what the library said, or the rule that spoke. Empty when ok."""
    rule: str = ""
    """The name of the rule that ruled the trial out or skipped it."""
    phase: str = ""
    """Where the trial was when it ended: context, model, data, trainer, first_step, warm_up, steps, inspection
    or anatomy."""
    measurements: Mapping[str, Any] = field(default_factory=dict)
    """Column name -> value, for the columns that the trackers and the inspection declare."""
    steps: Mapping[str, list[float]] = field(default_factory=dict)
    """Per optimizer step, warm-up included: ``step_seconds``, ``device_seconds``, ``data_seconds``, ``loss``."""
    anatomy: Anatomy | None = None
    """Where memory and time went, of a trial that was taken apart."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """GPU model, driver and package versions; rows of unlike environments are never ranked together."""
    started_at: float = 0.0
    """Unix time, seconds."""
    wall_seconds: float = 0.0
    """What the trial cost its slot: from the start of its process to its result, less what one that was forked ahead
    waited for its trial. A process's end goes on while the next one is made. Of a trial that was measured again, for
    somebody else had used the GPU beside it, both."""
    isolation: str = ""
    """How the process was made: "fork" from the preloaded parent, or "fresh"."""
    log: str = ""
    """The trial's own output, its end; a run folder keeps it in a file, and of what ended well only there."""

    @property
    def trial_id(self) -> str:
        """The spec's digest."""
        return self.spec.trial_id


def record_to_json(record: TrialRecord) -> dict[str, Any]:
    """A record as plain JSON values."""
    raw: dict[str, Any] = to_json(record)
    return raw


def record_from_json(raw: Mapping[str, Any]) -> TrialRecord:
    """The inverse of ``record_to_json``. Raises KeyError, TypeError or ValueError on a foreign document."""
    nested = {"spec": spec_from_json(raw["spec"]), "outcome": Outcome(raw["outcome"])}
    if raw.get("anatomy") is not None:
        nested["anatomy"] = anatomy_from_json(raw["anatomy"])
    return TrialRecord(**{**raw, **nested})
