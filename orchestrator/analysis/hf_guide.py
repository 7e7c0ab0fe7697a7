"""The Hugging Face guides' table: what they published, beside our figures taken their way."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.storage.run_metadata import RunMetadata

BERT_LARGE = ("bert", 1024, 24)
"""Architecture, width and layers of the guides' model."""
GUIDE_DATA = (512, 512)
"""Samples and tokens per sample of the guides' data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What the guides printed for one configuration."""

    choices: Mapping[str, Choice]
    """The axes that leave their default."""
    seconds: float
    samples_per_second: float
    memory_mib: int
    """NVML "used" after training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Guide:
    """The published table."""

    gpu: str
    context_mib: int
    """A bare CUDA context."""
    context_and_weights_mib: int
    """The same with BERT-large's weights in fp32."""
    rows: tuple[Published, ...]
    stands_for: Mapping[Choice, Choice]
    """Our optimizer -> the one in the table that it stands for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuideRow:
    """One of our configurations measured the guides' way, with what they published of it."""

    configuration: Configuration
    published: Published | None


@functools.cache
def guide() -> Guide:
    """The published table, read from ``hf_guide.yaml``."""
    raw = yaml.safe_load(files("orchestrator.analysis").joinpath("hf_guide.yaml").read_text())
    rows = []
    for choices, seconds, speed, memory in raw.pop("rows"):
        rows.append(
            Published(choices=choices, seconds=seconds, samples_per_second=speed, memory_mib=memory)
        )
    return Guide(**raw, rows=tuple(rows))


def published(choices: Mapping[str, Choice]) -> Published | None:
    """The guides' figures for these choices.

    None where they have none, or do not know an axis that was moved.
    """
    if any(axis not in AXES for axis in choices):
        return None
    defaults: dict[str, Choice] = {axis: AXES[axis].default for axis in AXES}
    wanted = {**defaults, **choices}
    # An optimizer of ours that the guides do not have counts as the one of theirs it replaces.
    wanted["optimizer"] = guide().stands_for.get(wanted["optimizer"], wanted["optimizer"])
    for row in guide().rows:
        if {**defaults, **row.choices} == wanted:
            return row
    return None


def guide_rows(run: RunMetadata, configurations: Sequence[Configuration]) -> tuple[GuideRow, ...]:
    """The configurations measured the guides' way, one whole epoch each, in the guides' order.

    Published figures are there only if the run trains the guides' model on the guides' amount of
    data.
    """
    is_comparable = _is_the_guides_experiment(run.config)
    rows = []
    for configuration in configurations:
        is_measured = configuration.row.get("hf_guide_seconds") is not None
        if not is_measured or not _ran_one_epoch(run, configuration):
            continue
        figures = None
        if is_comparable:
            figures = published(configuration.choices)
        rows.append(GuideRow(configuration=configuration, published=figures))
    return tuple(sorted(rows, key=_guides_order))


def _guides_order(row: GuideRow) -> int:
    """The row's number in the published table; rows that it does not have come last."""
    rows = guide().rows
    if row.published is None:
        return len(rows)
    return rows.index(row.published)


def _ran_one_epoch(run: RunMetadata, configuration: Configuration) -> bool:
    part = "cpu_fallback"
    if configuration.row.get("gpu_model"):
        part = "measure"
    settings = run.config.get(part) or {}
    # No number of steps means the whole epoch.
    return "steps" in settings and settings["steps"] is None


def _is_the_guides_experiment(config: Mapping[str, Any]) -> bool:
    model = config.get("model") or {}
    shape = model.get("config") or {}
    data = (config.get("data") or {}).get("synthetic") or {}
    size = (model.get("architecture"), shape.get("hidden_size"), shape.get("num_hidden_layers"))
    is_named = "bert-large" in str(model.get("name_or_path") or "")
    amount = (data.get("samples"), data.get("sequence_length"))
    return (size == BERT_LARGE or is_named) and amount == GUIDE_DATA
