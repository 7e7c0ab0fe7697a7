"""Converts records, tables and run.json of version 1 to the current version.

Runs measured before 2026-11-24 are of version 1: they have no ``schema_version``. Since then:

- Facts that were English sentences are values. ``warnings`` are now ``flags``, and ``equivalence``
  is now ``training_recipe``.
- Hooks were module paths and are now names in a registry. So a trial has another identity;
  ``orchestrator.storage.version_1_identity`` computes the old one.
- Columns, measurements and config keys have the names that are usual in machine learning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobs.flags import Flag, FlagKind, flag_columns
from jobs.spec import Choice
from orchestrator.storage.version_1_identity import HOOKS

RENAMED_COLUMNS: Mapping[str, str] = {
    "device_used_bytes": "device_peak_bytes",
    "starved_share": "launch_bound_forward_share",
    "starved_forward_share": "launch_bound_forward_share",
    "starved_update_share": "launch_bound_update_share",
    "samples_per_second_error": "samples_per_second_ci95",
    "docs_time_seconds": "hf_guide_seconds",
    "docs_samples_per_second": "hf_guide_samples_per_second",
    "docs_gpu_memory_mb": "hf_guide_memory_mib",
    "step_growth_bytes": "cpu_step_peak_bytes",
    "wall_seconds": "slot_seconds",
    "slot_parent_pid": "slot_pid",
    "follows": "follows_trial",
    "among": "compared_with",
    "turn": "round",
}
"""Column of version 1 -> its name today."""

_PURPOSES = {
    "search": "search",
    "budget": "cap_check",
    "comparison": "tie_break",
    "anatomy": "profile",
}
_DELIVERY = ("slot_pid", "isolation_fallback", "node", "cpus", "host_memory_bytes", "log_file")
"""Measurements of version 1 that today's records keep under ``provenance``."""
_EFFECTIVE_BATCH = "effective_batch"


def upgraded_record(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a version-1 record to today's JSON.

    Raises KeyError, TypeError or ValueError if ``raw`` is not such a record.
    """
    measurements = _with_flags(_renamed(raw["measurements"]))
    # Drop the overhead: today it is computed when a table is made.
    measurements.pop("overhead_seconds", None)
    delivery = _taken_delivery(measurements, raw)
    moved = ("measurements", "spec", "started_at", "wall_seconds", "isolation", "log")
    kept = _without(raw, moved)
    if kept.get("phase") == "anatomy":
        kept["phase"] = "profile"
    return {
        **kept,
        "spec": upgraded_spec(raw["spec"]),
        "measurements": measurements,
        "provenance": delivery,
    }


def _taken_delivery(measurements: dict[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """The delivery of a version-1 record. Removes its values from ``measurements``."""
    delivery = {}
    for name in _DELIVERY:
        if name in measurements:
            delivery[name] = measurements.pop(name)
    return {
        **delivery,
        "started_at": raw["started_at"],
        "slot_seconds": raw["wall_seconds"],
        "isolation": raw["isolation"],
        "log": raw.get("log", ""),
    }


def upgraded_spec(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a version-1 trial spec to today's JSON.

    The trials in ``follow_up`` keep their old identities.
    """
    return {
        **_without(raw, ("recipe", "equivalence", "measure", "follow_up")),
        "settings": _upgraded_settings(raw["recipe"]),
        "training_recipe": training_recipe(raw["equivalence"], raw["choices"]),
        "measure": upgraded_measure(raw["measure"]),
        "follow_up": _upgraded_follow_up(raw.get("follow_up")),
    }


def upgraded_run(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a version-1 ``run.json`` to today's."""
    # The oldest runs kept no configuration.
    config = raw.get("config")
    if not config:
        return dict(raw)
    return {**raw, "config": _upgraded_config(config)}


def _upgraded_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    config = _renamed(raw, {"trackers": "loggers", "cpu": "cpu_fallback"})
    if "measure" in config:
        config["measure"] = upgraded_measure(config["measure"])
    return config


def upgraded_measure(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a version-1 ``MeasureSpec`` to today's JSON."""
    names = {"deadline_seconds": "timeout_seconds", "anatomy": "profile", "cap": "memory_cap"}
    measure = _renamed(raw, names)
    cap = measure.get("memory_cap")
    if cap is not None:
        measure["memory_cap"] = {
            "device_bytes": cap["device_bytes"],
            "non_allocator_bytes": cap["outside_bytes"],
        }
    return measure


def _upgraded_settings(raw: Mapping[str, Any]) -> dict[str, Any]:
    settings = _without(raw, ("hooks", "prepares"))
    settings["builds"] = raw["prepares"]
    settings["hooks"] = {
        place: {"name": HOOKS[path], "arguments": arguments}
        for place, (path, arguments) in raw["hooks"].items()
    }
    return settings


def _upgraded_follow_up(raw: Mapping[str, Any] | None) -> dict[str, Any] | None:
    # The ids of its trials are converted later, when all records have been read.
    if raw is None:
        return None
    return {
        "follows_trial": raw["follows"],
        "purpose": _PURPOSES[raw["purpose"]],
        "compared_with": raw["among"],
        "round": raw["turn"],
    }


def training_recipe(equivalence: str, choices: Mapping[str, Choice]) -> dict[str, Choice]:
    """Convert ``effective_batch=16 · optimizer=sgd`` to ``{"optimizer": "sgd"}``.

    The effective batch is left out.
    """
    # Take the values from ``choices``, because the text has lost their types.
    recipe: dict[str, Choice] = {}
    # The text of a recipe without any choice is "plain", which has no "=".
    for part in equivalence.split(" · "):
        axis, is_choice, value = part.partition("=")
        if is_choice and axis != _EFFECTIVE_BATCH:
            recipe[axis] = choices.get(axis, value)
    return recipe


def upgraded_rows(
    rows: Sequence[Mapping[str, Any]], axes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Convert rows of a version-1 ``trials.parquet``. ``axes`` maps each axis to its column."""
    return [_upgraded_row(row, axes) for row in rows]


def _upgraded_row(row: Mapping[str, Any], axes: Mapping[str, str]) -> dict[str, Any]:
    upgraded = _renamed(row)
    choices = {axis: row[column] for axis, column in axes.items()}
    recipe = training_recipe(upgraded.pop("equivalence"), choices)
    upgraded["training_recipe"] = json.dumps(recipe, sort_keys=True)
    # The oldest tables have no purpose. All their trials are the search's.
    upgraded["purpose"] = _PURPOSES[row.get("purpose") or "search"]
    return _with_flags(upgraded)


def _with_flags(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the columns of flags in place of ``warnings``, if it is there."""
    warnings = values.pop("warnings", None)
    if warnings is None:
        return values
    return values | flag_columns([_flag(text) for text in warnings])


def _renamed(
    values: Mapping[str, Any], names: Mapping[str, str] = RENAMED_COLUMNS
) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items()}


def _without(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _share(text: str) -> float:
    # Warnings had percentages; flags have shares.
    return float(text) / 100


def _gibibytes(text: str) -> float:
    # Warnings had GiB; flags have bytes.
    return float(text) * 2**30


def _no_value(text: str) -> None:
    """A flag of this kind carries no figure."""


_WARNINGS: tuple[tuple[str, FlagKind, Callable[[str], float | None]], ...] = (
    (r"unstable: the mean step is known to ±([\d.]+)%", FlagKind.UNSTABLE, _share),
    (r"unstable: a single step counted()", FlagKind.UNSTABLE, _no_value),
    (r"host-bound: ()", FlagKind.HOST_BOUND, _no_value),
    (r"partly host-bound: .* took (\d+)% of the time", FlagKind.LAUNCH_BOUND, _share),
    (r"thrashing: .* its cache (\d+) times", FlagKind.THRASHING, float),
    (r"shared: (\d+) other processes", FlagKind.SHARED_PROCESSES, float),
    (r"shared: ([\d.]+) GiB .* before the trial", FlagKind.SHARED_BEFORE, _gibibytes),
    (r"shared: ([\d.]+) GiB ", FlagKind.SHARED_DURING, _gibibytes),
    (
        r"trains differently: loss ([\d.]+) times .* as is its accumulation",
        FlagKind.LOSS_TIMES_ACCUMULATION,
        float,
    ),
    (r"trains differently: loss ([\d.]+) times", FlagKind.LOSS_MISMATCH, float),
    (
        r"trains differently: loss is \S+ from step (\d+)",
        FlagKind.LOSS_NOT_FINITE,
        float,
    ),
)
"""Pattern of a version-1 warning, the kind of its flag, and the conversion of its number."""


def _flag(warning: str) -> Flag:
    """Convert a version-1 warning to a flag. Raises ValueError if version 1 never wrote it."""
    for pattern, kind, value_of in _WARNINGS:
        match = re.match(pattern, warning)
        if match:
            return Flag(kind, value_of(match[1]))
    raise ValueError(f"not a warning of version 1: {warning[:80]}")
