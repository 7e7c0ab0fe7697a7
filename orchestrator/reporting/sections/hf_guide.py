"""The table of the Hugging Face guides, with measurements by the guides' method and by ours."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.reporting.configurations import CONFIGURATION, SPEED, mark_notes, row_of
from orchestrator.reporting.content import Column, Content, Format, Table
from orchestrator.storage.run_metadata import RunMetadata


@dataclass(frozen=True, slots=True)
class Published:
    """What the guides printed for one configuration."""

    choices: Mapping[str, Choice]
    """Axis -> value, for the axes whose value is not the default."""
    seconds: float
    samples_per_second: float
    memory_mib: int
    """NVML "used" after training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Guide:
    """The published table."""

    gpu: str
    context_mib: int
    """Memory of a bare CUDA context."""
    context_and_weights_mib: int
    """The same with BERT-large's weights in fp32."""
    rows: tuple[Published, ...]
    stands_for: Mapping[Choice, Choice]
    """Our optimizer -> the optimizer of the table that it is compared with."""


@functools.cache
def guide() -> Guide:
    """The published table, read from ``hf_guide.yaml``."""
    raw = yaml.safe_load(files(__package__).joinpath("hf_guide.yaml").read_text())
    return Guide(**{**raw, "rows": tuple(Published(*row) for row in raw["rows"])})


def published(choices: Mapping[str, Choice]) -> Published | None:
    """The guides' figures for these choices. None if the guides have no such row, or if ``choices``
    sets anything beside the known axes."""
    if any(axis not in AXES for axis in choices):
        return None
    defaults: dict[str, Choice] = {axis: AXES[axis].default for axis in AXES}
    wanted = {**defaults, **choices}
    # An optimizer that the guides lack is compared with the one that it stands for.
    wanted["optimizer"] = guide().stands_for.get(wanted["optimizer"], wanted["optimizer"])
    return next((row for row in guide().rows if {**defaults, **row.choices} == wanted), None)


def guide_rows(
    run: RunMetadata, configurations: Sequence[Configuration]
) -> list[tuple[Configuration, Published | None]]:
    """The configurations measured as in the guides, one whole epoch each, in the guides' order. A
    row has published figures only if the run has the guides' model and amount of data."""
    is_comparable = _is_the_guides_experiment(run.config)
    rows = []
    for own in configurations:
        # The number of steps is in ``measure``, or in ``cpu_fallback`` for a trial without a GPU.
        measure = run.config.get("measure" if own.row.get("gpu_model") else "cpu_fallback") or {}
        # No number of steps means the whole epoch.
        if own.row.get("hf_guide_seconds") is not None and measure.get("steps", 0) is None:
            rows.append((own, published(own.choices) if is_comparable else None))
    order = [*guide().rows, None]
    return sorted(rows, key=lambda row: order.index(row[1]))


def _is_the_guides_experiment(config: Mapping[str, Any]) -> bool:
    model = config.get("model") or {}
    shape = model.get("config") or {}
    data = (config.get("data") or {}).get("synthetic") or {}
    size = (model.get("architecture"), shape.get("hidden_size"), shape.get("num_hidden_layers"))
    is_named = "bert-large" in str(model.get("name_or_path") or "")
    amount = (data.get("samples"), data.get("sequence_length"))
    return (size == ("bert", 1024, 24) or is_named) and amount == (512, 512)


_FIGURES = ("seconds", "samples_per_second", "memory_mib")
_MEASURED = ("peak_allocated_bytes", "peak_reserved_bytes", "device_peak_bytes")


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each configuration that was measured over one whole epoch."""
    measured = guide_rows(dataset.run, results.configurations)
    if not measured:
        return None
    gpu = guide().gpu
    text = [
        "“By hand” is the guides' method, one configuration at a time: time and samples/s over one "
        "epoch with the warm-up, and the memory that NVML reports after training, not its peak.",
        "The other columns are the steady state and true peaks.",
    ]
    if any(published for _, published in measured):
        text.append(
            f"“{gpu}”: what the Hugging Face guides “Methods and tools for efficient training on a "
            f"single GPU” and “Model training anatomy” published for a {gpu} with 16 GB. A bare "
            f"CUDA context took {guide().context_mib:,} MiB there, and "
            f"{guide().context_and_weights_mib:,} MiB with the model's weights."
        )
    rows = tuple(_row(dataset, results, *row) for row in measured)
    return Content(
        title="Measured as in the Hugging Face guides",
        text=tuple(text),
        tables=(Table(columns=_columns(), rows=rows),),
        notes=mark_notes(results, [configuration for configuration, _ in measured]),
    )


def _columns() -> tuple[Column, ...]:
    gpu = guide().gpu
    columns = [
        ("by_hand_seconds", "by hand, s", Format.NUMBER),
        ("by_hand_samples_per_second", "by hand, samples/s", Format.NUMBER),
        ("by_hand_memory_mib", "by hand, MiB", Format.COUNT),
        ("peak_allocated_bytes", "peak allocated, MiB", Format.MEBIBYTES),
        ("peak_reserved_bytes", "peak reserved, MiB", Format.MEBIBYTES),
        ("device_peak_bytes", "peak of the GPU, MiB", Format.MEBIBYTES),
        ("published_seconds", f"{gpu}, s", Format.TEXT),
        ("published_samples_per_second", f"{gpu}, samples/s", Format.TEXT),
        ("published_memory_mib", f"{gpu}, MiB", Format.COUNT),
    ]
    made = [Column(key=key, heading=heading, format=format) for key, heading, format in columns]
    return (CONFIGURATION, *made[:3], SPEED, *made[3:])


def _row(
    dataset: Dataset,
    results: EnvironmentResults,
    configuration: Configuration,
    published: Published | None,
) -> dict[str, Any]:
    measured = configuration.row
    return {
        **row_of(dataset, results, configuration),
        **{f"by_hand_{name}": measured.get(f"hf_guide_{name}") for name in _FIGURES},
        **{name: measured.get(name) for name in _MEASURED},
        **{f"published_{name}": published and getattr(published, name) for name in _FIGURES},
    }
