"""What is unlike about two runs before any of their figures is compared: hardware, versions, training, hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from orchestrator.api import MeasuredRun

Part = Literal["environment", "model", "data", "training_arguments", "measure", "host"]
VERSIONS: tuple[Part, ...] = ("environment", "model", "data", "training_arguments")
"""What makes a configuration's losses other ones beyond rounding."""
SCHEDULE: tuple[Part, ...] = ("measure",)
"""What decides a training's batches and learning rates step by step: losses of unlike ones have nothing in common."""
HOSTS: tuple[Part, ...] = ("host",)
"""What paces the rows that the accelerator does not."""


def differences(
    before: MeasuredRun,
    after: MeasuredRun,
    parts: tuple[Part, ...] = (*VERSIONS, *SCHEDULE, *HOSTS),
) -> Iterator[tuple[str, str, str]]:
    """What is unlike: (what, before, after). A setting that one side does not know is off there."""
    for part in parts:
        old, new = (_part(run, part) for run in (before, after))
        for key in sorted(old.keys() | new.keys()):
            if (old.get(key) or None) != (new.get(key) or None):
                what = key if part == "environment" else f"{part} {key}"
                yield what, str(old.get(key, "–")), str(new.get(key, "–"))


def _part(run: MeasuredRun, part: Part) -> Mapping[str, Any]:
    match part:
        case "environment":
            return run.environments.get(run.environment_id, {})
        case "measure":
            return _schedule(run)
        case "host":
            return _host(run)
    return run.run.config.get(part) or {}


def _schedule(run: MeasuredRun) -> Mapping[str, Any]:
    """The seed, and the steps over which the learning rate decays: without a GPU those of the config's ``cpu``."""
    config = run.run.config
    has_gpu = any(point.row["gpu_model"] for point in run.own())
    asked = {**config.get("measure", {}), **({} if has_gpu else config.get("cpu", {}))}
    return {name: asked.get(name) for name in ("seed", "steps", "warmup_steps")}


def _host(run: MeasuredRun) -> Mapping[str, Any]:
    """How much of a host a trial had, and how many GPUs shared it."""
    rows = [point.row for point in run.own()]
    cores = Counter(row["cpus"] for row in rows if row.get("cpus")).most_common(1)
    gpus = {row["gpu_uuid"] for row in rows if row.get("gpu_uuid")}
    return {"cores a trial": cores[0][0] if cores else None, "GPUs at work": len(gpus)}
