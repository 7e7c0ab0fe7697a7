"""How the set-ups of two runs differ: hardware, versions, training, hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from orchestrator.analysis.dataset import Dataset

SetupPart = Literal["environment", "model", "data", "training_arguments", "measure", "host"]
"""If "measure" differs, every step has another batch or learning rate, so losses cannot be
compared. The host limits the speed of rows that are not GPU-bound."""
VERSIONS: tuple[SetupPart, ...] = ("environment", "model", "data", "training_arguments")
"""If one of these differs, the losses of a configuration may differ by more than rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupDifference:
    """One setting that differs between two runs."""

    part: SetupPart
    name: str
    before: str
    after: str

    @property
    def label(self) -> str:
        """``gpu_model``, ``model architecture``, ``host gpus``."""
        return self.name if self.part == "environment" else f"{self.part} {self.name}"


def differences(before: Dataset, after: Dataset) -> Iterator[SetupDifference]:
    """The settings that differ. A setting that a run does not have is the same as an empty one."""
    for part in get_args(SetupPart):
        earlier, later = _settings(before, part), _settings(after, part)
        for name in sorted(earlier.keys() | later.keys()):
            if (earlier.get(name) or None) != (later.get(name) or None):
                yield SetupDifference(
                    part=part,
                    name=name,
                    before=str(earlier.get(name, "–")),
                    after=str(later.get(name, "–")),
                )


def _settings(run: Dataset, part: SetupPart) -> Mapping[str, Any]:
    config = run.run.config
    rows = [] if run.main is None else [each.row for each in run.main.configurations]
    if part == "environment":
        return {} if run.main is None else run.main.environment
    if part == "measure":
        # The seed, and the steps over which the learning rate decays. Without a GPU these are the
        # values of ``cpu_fallback``.
        measure = dict(config.get("measure", {}))
        if not any(row["gpu_model"] for row in rows):
            measure |= config.get("cpu_fallback", {})
        return {name: measure.get(name) for name in ("seed", "steps", "warmup_steps")}
    if part == "host":
        cores = Counter(row["cpus"] for row in rows if row.get("cpus"))
        usual_cores, _ = next(iter(cores.most_common(1)), (None, 0))
        gpus = {row["gpu_uuid"] for row in rows if row.get("gpu_uuid")}
        return {"cores per trial": usual_cores, "GPUs in use": len(gpus)}
    return config.get(part) or {}
