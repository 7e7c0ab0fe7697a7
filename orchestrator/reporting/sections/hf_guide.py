"""The table of the Hugging Face guides, with measurements by the guides' method and by ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.hf_guide import GuideRow, guide
from orchestrator.reporting.configurations import CONFIGURATION, SPEED, mark_notes, row_of
from orchestrator.reporting.content import Column, Content, EnvironmentSection, Format, Table

_NOT_PUBLISHED: Mapping[str, Any] = {
    "published_seconds": None,
    "published_samples_per_second": None,
    "published_memory_mib": None,
}
_GUIDES = (
    "the Hugging Face guides “Methods and tools for efficient training on a single GPU” and “Model "
    "training anatomy”"
)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each configuration that was measured over one whole epoch."""
    if not results.guide_rows:
        return None
    # The published figures are explained only if a row has some.
    text = _text()
    if any(row.published for row in results.guide_rows):
        text += _published_text()
    rows = tuple(_row(dataset, results, row) for row in results.guide_rows)
    return Content(
        title="Measured as in the Hugging Face guides",
        text=text,
        tables=(Table(columns=_columns(), rows=rows),),
        notes=mark_notes(results, [row.configuration for row in results.guide_rows]),
    )


def _text() -> tuple[str, ...]:
    return (
        "“By hand” is the guides' method, one configuration at a time: time and samples/s over one "
        "epoch with the warm-up, and the memory that NVML reports after training, not its peak.",
        "The other columns are the steady state and true peaks.",
    )


def _published_text() -> tuple[str, ...]:
    gpu = guide().gpu
    context = f"{guide().context_mib:,} MiB"
    with_weights = f"{guide().context_and_weights_mib:,} MiB"
    return (
        f"“{gpu}”: what {_GUIDES} published for a {gpu} with 16 GB. A bare CUDA "
        f"context took {context} there, and {with_weights} with the model's weights.",
    )


def _columns() -> tuple[Column, ...]:
    gpu = guide().gpu
    return (
        CONFIGURATION,
        _column("by_hand_seconds", "by hand, s", Format.NUMBER),
        _column("by_hand_samples_per_second", "by hand, samples/s", Format.NUMBER),
        _column("by_hand_memory_mib", "by hand, MiB", Format.COUNT),
        SPEED,
        _column("peak_allocated_bytes", "peak allocated, MiB", Format.MEBIBYTES),
        _column("peak_reserved_bytes", "peak reserved, MiB", Format.MEBIBYTES),
        _column("device_peak_bytes", "peak of the GPU, MiB", Format.MEBIBYTES),
        _column("published_seconds", f"{gpu}, s", Format.TEXT),
        _column("published_samples_per_second", f"{gpu}, samples/s", Format.TEXT),
        _column("published_memory_mib", f"{gpu}, MiB", Format.COUNT),
    )


def _column(key: str, heading: str, format: Format) -> Column:
    return Column(key=key, heading=heading, format=format)


def _row(dataset: Dataset, results: EnvironmentResults, row: GuideRow) -> dict[str, Any]:
    measured = row.configuration.row
    published = row.published
    figures: dict[str, Any] = {}
    if published is not None:
        figures = {
            "published_seconds": published.seconds,
            "published_samples_per_second": published.samples_per_second,
            "published_memory_mib": published.memory_mib,
        }
    return {
        **row_of(dataset, results, row.configuration),
        "by_hand_seconds": measured.get("hf_guide_seconds"),
        "by_hand_samples_per_second": measured.get("hf_guide_samples_per_second"),
        "by_hand_memory_mib": measured.get("hf_guide_memory_mib"),
        "peak_allocated_bytes": measured.get("peak_allocated_bytes"),
        "peak_reserved_bytes": measured.get("peak_reserved_bytes"),
        "device_peak_bytes": measured.get("device_peak_bytes"),
        **_NOT_PUBLISHED,
        **figures,
    }


SECTION = EnvironmentSection(name="hf_guide", make=make)
