"""The guide's own table: the figures it published, and ours taken its way beside ours taken in the steady state.

The figures are those of Hugging Face's guide "Methods and tools for efficient training on a single GPU"
(https://huggingface.co/docs/transformers/perf_train_gpu_one) and its companion "Model training anatomy"
(https://huggingface.co/docs/transformers/model_memory_anatomy), of 2022: BERT-large, 512 samples of 512 random tokens,
one epoch on a V100 with 16 GB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.analysis.pareto import Point
from orchestrator.storage.run_metadata import Run

SOURCE = "the Hugging Face guides “Methods and tools for efficient training on a single GPU” and “Model training anatomy”"
GPU = "V100"


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What the guide printed for one configuration."""

    choices: Mapping[str, Choice]
    """The axes that leave their default."""
    seconds: float
    samples_per_second: float
    memory_mb: int
    """NVML "used" after training, // 1024**2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuideRow:
    """A configuration of ours, measured the guide's way, with what the guide published of it."""

    point: Point
    published: Published | None


def _row(
    seconds: float, speed: float, memory_mb: int, *, split: bool = False, **choices: Choice
) -> Published:
    batch = {"micro_batch": 1, "accumulation": 4} if split else {"micro_batch": 4}
    return Published(
        choices={**batch, **choices}, seconds=seconds, samples_per_second=speed, memory_mb=memory_mb
    )


_LEAN: dict[str, Choice] = {"activations": "checkpoint", "precision": "fp16"}
PUBLISHED: tuple[Published, ...] = (
    _row(57.82, 8.86, 14949),
    _row(66.03, 7.75, 8681, split=True),
    _row(85.47, 5.99, 6775, split=True, activations="checkpoint"),
    _row(27.46, 18.64, 13939, precision="fp16"),
    _row(50.76, 10.09, 7275, split=True, **_LEAN),
    _row(64.31, 7.96, 12295, optimizer="adafactor"),
    _row(56.54, 9.06, 4847, split=True, **_LEAN, optimizer="adafactor"),
    _row(55.95, 9.15, 13085, optimizer="adam8bit_decay_groups"),
    _row(49.46, 10.35, 5363, split=True, **_LEAN, optimizer="adam8bit_decay_groups"),
)
"""In the guide's order. Its Accelerate loop comes without figures."""

CONTEXT_MB, WEIGHTS_MB = 1343, 2631
"""The guide's bare CUDA context, and the same with BERT-large's weights in fp32."""

# The guide's AdamW was transformers' own, since removed; its 8-bit Adam was bitsandbytes', built by hand.
_STANDS_FOR: Mapping[Choice, Choice] = {
    "adamw_torch": "adamw_torch_fused",
    "adamw_bnb_8bit": "adam8bit_decay_groups",
}


def published(choices: Mapping[str, Choice]) -> Published | None:
    """The guide's figures for these choices; None where it has none, or where an axis it does not know was moved."""
    if any(axis not in AXES for axis in choices):
        return None
    own = {axis: choices.get(axis, AXES[axis].default) for axis in AXES}
    own["optimizer"] = _STANDS_FOR.get(own["optimizer"], own["optimizer"])
    defaults: dict[str, Choice] = {axis: AXES[axis].default for axis in AXES}
    return next((row for row in PUBLISHED if {**defaults, **row.choices} == own), None)


def guide_rows(run: Run, points: Sequence[Point]) -> tuple[GuideRow, ...]:
    """The points measured the guide's way: one whole epoch each. In the guide's order; empty when the run is no such.

    The published figures are there only when the run trains the guide's model on the guide's amount of data.
    """
    if not any(_is_epoch(run, part) for part in _PARTS.values()):
        return ()
    measured = [
        point
        for point in points
        if point.row.get("docs_time_seconds") is not None
        and _is_epoch(run, _PARTS[bool(point.row.get("gpu_model"))])
    ]
    same = _is_the_guides_experiment(run.config)
    rows = [
        GuideRow(point=point, published=published(point.choices) if same else None)
        for point in measured
    ]
    return tuple(
        sorted(
            rows,
            key=lambda row: PUBLISHED.index(row.published) if row.published else len(PUBLISHED),
        )
    )


_PARTS = {True: "measure", False: "cpu"}
"""Whether there is a GPU -> the part of a config that says how long to measure."""


def _is_epoch(run: Run, part: str) -> bool:
    how = run.config.get(part) or {}
    return "steps" in how and how["steps"] is None


def _is_the_guides_experiment(config: Mapping[str, Any]) -> bool:
    model, data = config.get("model") or {}, (config.get("data") or {}).get("synthetic") or {}
    shape = model.get("config") or {}
    size = (model.get("architecture"), shape.get("hidden_size"), shape.get("num_hidden_layers"))
    named = "bert-large" in str(model.get("name_or_path") or "")
    return (size == ("bert", 1024, 24) or named) and (
        data.get("samples"),
        data.get("sequence_length"),
    ) == (512, 512)
