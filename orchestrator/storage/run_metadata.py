"""What was run: ``run.json``, the part of a report that no trial knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter
from pydantic_core import from_json
from typing_extensions import TypedDict

from jobs.record import SCHEMA_VERSION
from jobs.spec import Choice
from orchestrator.storage.layout import RUN
from orchestrator.storage.migration import upgraded_run
from orchestrator.storage.redaction import redacted


class UnreadableRunError(ValueError):
    """A file of the run folder is damaged, foreign or of a newer version; the text says which."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMetadata:
    """What was run. Everything may be missing from an old run."""

    name: str = ""
    command: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    budgets: tuple[int, ...] = ()
    """Memory budgets in bytes."""
    baseline: Mapping[str, Choice] = field(default_factory=dict)
    """Axis -> the variant that techniques are compared with."""
    one_time_costs: Mapping[str, Any] = field(default_factory=dict)
    """What was paid once per node, outside every trial's time (seconds if a number)."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """What the search says of itself (``Search.summary``); empty if it measured everything."""
    notes: tuple[str, ...] = ()
    """Sentences about the machines."""
    started_at: float = 0.0
    """Unix time, seconds."""
    planned: int | None = None
    """Trials to be measured; None if the search makes them as it goes."""
    axes: tuple[str, ...] = ()
    """The axes in play, in the order of the file."""
    finished: bool = True
    """Whether every trial has its row.

    False while a sweep runs, and if its driver was killed.
    """
    schema_version: int = 1
    """1 if the file does not say; see ``orchestrator.storage.migration``."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """A run from ``run.json``: foreign keys are ignored, missing ones take their defaults.

        Raises ValueError.
        """
        if raw.get("schema_version", 1) < SCHEMA_VERSION:
            raw = {**upgraded_run(raw), "schema_version": SCHEMA_VERSION}
        # Earlier versions wrote secrets down; tables and pages made from them must not.
        cleaned = redacted(raw)
        # An old run wrote null if it had nothing to say; the default says the same.
        given = {key: value for key, value in cleaned.items() if value is not None}
        run: Self = TypeAdapter(cls).validate_python(given)
        _CONFIG.validate_python(dict(run.config))
        if run.schema_version > SCHEMA_VERSION:
            raise ValueError(f"written by a newer version (schema {run.schema_version})")
        if run.search:
            _SEARCH_SUMMARY.validate_python(dict(run.search))
        return run


class _ModelConfig(TypedDict, total=False):
    task: str
    architecture: str | None
    config: dict[str, Any]
    name_or_path: str | None


class _DataConfig(TypedDict, total=False):
    synthetic: dict[str, Any] | None
    file: dict[str, Any] | None


class _Config(TypedDict, total=False):
    """The parts of a kept configuration that pages and comparisons read; others are free."""

    model: _ModelConfig
    data: _DataConfig
    training_arguments: dict[str, Any]
    deepspeed: dict[str, Any] | None
    axes: dict[str, list[Choice]]
    subsets: dict[str, dict[str, list[Choice]]]
    baseline: dict[str, Choice]
    measure: dict[str, Any]
    follow_up: dict[str, Any] | None
    resources: dict[str, Any] | None
    search: dict[str, Any] | None


_CONFIG = TypeAdapter(_Config)


@dataclass(frozen=True, kw_only=True, slots=True)
class _SearchSummary:
    """What a page needs to know of a search, if there is anything to say of it."""

    kind: str
    planned: int
    measured: int
    skipped: Mapping[str, int]
    audit: Mapping[str, Any] | None = None


_SEARCH_SUMMARY = TypeAdapter(_SearchSummary)


def read_run(run_folder: Path) -> RunMetadata:
    """The folder's ``run.json``, or an anonymous run named after the folder.

    Raises UnreadableRunError.
    """
    path = run_folder / RUN
    try:
        raw = {}
        if path.exists():
            raw = from_json(path.read_bytes())
        name = raw.get("name") or run_folder.resolve().name
        return RunMetadata.from_json({**raw, "name": name})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Only the sentence about the version is of use to a reader; the others are pydantic's.
        reason = "damaged or not of this program"
        if "newer version" in str(error):
            reason = str(error)
        raise UnreadableRunError(
            f"{path}: {reason}; move the file away to read the run without it"
        ) from None
