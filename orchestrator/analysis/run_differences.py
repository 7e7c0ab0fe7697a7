"""How the set-ups of two runs differ: hardware, versions, training, hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.analysis.dataset import Dataset

Part = Literal["environment", "model", "data", "training_arguments", "measure", "host"]
VERSIONS: tuple[Part, ...] = ("environment", "model", "data", "training_arguments")
"""Where these differ, a configuration's losses may differ beyond rounding."""
SCHEDULE: tuple[Part, ...] = ("measure",)
"""It decides batches and learning rates step by step: where it differs, losses have nothing in
common.
"""
HOSTS: tuple[Part, ...] = ("host",)
"""The pace of rows that are not GPU-bound."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One setting that differs between two runs."""

    part: Part
    name: str
    before: str
    after: str

    @property
    def label(self) -> str:
        """``gpu_model``, ``model architecture``, ``host gpus``."""
        return self.name if self.part == "environment" else f"{self.part} {self.name}"


def differences(
    before: Dataset,
    after: Dataset,
    parts: tuple[Part, ...] = (*VERSIONS, *SCHEDULE, *HOSTS),
) -> Iterator[Difference]:
    """The settings that differ. One that a run does not have counts as off."""
    for part in parts:
        old, new = _settings(before, part), _settings(after, part)
        for name in sorted(old.keys() | new.keys()):
            if (old.get(name) or None) != (new.get(name) or None):
                yield Difference(
                    part=part,
                    name=name,
                    before=str(old.get(name, "–")),
                    after=str(new.get(name, "–")),
                )


def _settings(run: Dataset, part: Part) -> Mapping[str, Any]:
    if part == "environment":
        return run.main.environment if run.main else {}
    if part == "measure":
        return _schedule(run)
    if part == "host":
        return _host(run)
    return run.run.config.get(part) or {}


def _schedule(run: Dataset) -> Mapping[str, Any]:
    """The seed, and the steps over which the learning rate decays: without a GPU those of
    ``cpu_fallback``.
    """
    config = run.run.config
    configurations = run.main.configurations if run.main else ()
    has_gpu = any(own.row["gpu_model"] for own in configurations)
    measure = {**config.get("measure", {})}
    if not has_gpu:
        measure |= config.get("cpu_fallback", {})
    return {name: measure.get(name) for name in ("seed", "steps", "warmup_steps")}


def _host(run: Dataset) -> Mapping[str, Any]:
    """How many cores a trial had, and how many GPUs shared the host."""
    rows = [own.row for own in run.main.configurations] if run.main else []
    cores = Counter(row["cpus"] for row in rows if row.get("cpus")).most_common(1)
    gpus = {row["gpu_uuid"] for row in rows if row.get("gpu_uuid")}
    return {"cores per trial": cores[0][0] if cores else None, "GPUs in use": len(gpus)}
