"""Reads ``run.json``: the facts about a run that its trials' records do not hold."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter
from pydantic_core import from_json
from typing_extensions import TypedDict

from jobs.record import SCHEMA_VERSION
from jobs.spec import Choice
from orchestrator.storage.layout import RUN, read_regular
from orchestrator.storage.redaction import redacted
from orchestrator.storage.search_summary import SearchSummary


class UnreadableRunError(ValueError):
    """A file of the run folder is damaged, foreign or of a newer version; the message names it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMetadata:
    """The content of ``run.json``. Any field may be missing."""

    name: str = ""
    command: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    budgets: tuple[int, ...] = ()
    """Memory budgets in bytes."""
    baseline: Mapping[str, Choice] = field(default_factory=dict)
    """Axis -> the variant that techniques are compared with."""
    one_time_costs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Costs that arise once per node, outside the time of any trial. Numbers are seconds."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """The search's summary (``Search.summary``); empty if it measured everything."""
    notes: tuple[str, ...] = ()
    """Sentences about the machines."""
    started_at: float = 0.0
    """Unix time, seconds."""
    planned: int | None = None
    """Number of planned trials; None if the search decides on trials one by one."""
    axes: tuple[str, ...] = ()
    """The axes of the sweep, in the order of the config file."""
    finished: bool = True
    """Whether every trial has its row; False while the sweep runs, or if its driver was killed."""
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The content of ``run.json``; unknown keys are ignored, and missing ones have defaults.
        Raises ValueError if a value is of a wrong type, or a newer version wrote the file."""
        # The file may come from elsewhere, and its secrets must not reach tables and pages. A
        # missing value may be null.
        given = {key: value for key, value in redacted(raw).items() if value is not None}
        run: Self = TypeAdapter(cls).validate_python(given)
        _CONFIG.validate_python(dict(run.config))
        if run.schema_version > SCHEMA_VERSION:
            raise ValueError(f"written by a newer version (schema {run.schema_version})")
        if run.search:
            _SEARCH_SUMMARY.validate_python(run.search)
        return run

    @property
    def search_summary(self) -> SearchSummary | None:
        """What the search says of itself, typed; None if it measured everything."""
        return _SEARCH_SUMMARY.validate_python(self.search) if self.search else None


class _ModelConfig(TypedDict, total=False):
    task: str
    architecture: str | None
    config: dict[str, Any]
    name_or_path: str | None


class _DataConfig(TypedDict, total=False):
    synthetic: dict[str, Any] | None
    file: dict[str, Any] | None


class _Config(TypedDict, total=False):
    """The parts of a stored configuration that pages and comparisons read. Others are unchecked."""

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
_SEARCH_SUMMARY = TypeAdapter(SearchSummary)


def read_run(run_folder: Path) -> RunMetadata:
    """The folder's ``run.json``, or defaults with the folder's name. Raises UnreadableRunError."""
    path = run_folder / RUN
    advice = "move the file away to read the run without it"
    content = b"{}"
    try:
        with contextlib.suppress(FileNotFoundError):
            content = read_regular(path)
        raw = from_json(content)
        name = raw.get("name") or run_folder.resolve().name
        return RunMetadata.from_json({**raw, "name": name})
    except OSError as error:
        raise UnreadableRunError(f"{path}: {error.strerror or error}; {advice}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Only the error about the version has a text for users. The other texts are pydantic's.
        is_newer = "newer version" in str(error)
        reason = str(error) if is_newer else "damaged or not of this program"
        raise UnreadableRunError(f"{path}: {reason}; {advice}") from None
