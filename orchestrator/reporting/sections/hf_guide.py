"""The Hugging Face guides' table beside ours, measured the guides' way and in steady state."""

from __future__ import annotations

from typing import Any

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.hf_guide import GuideRow, guide
from orchestrator.reporting.configurations import CONFIGURATION, mark_notes, row_of
from orchestrator.reporting.content import Column, Content, EnvironmentSection, Format, Table

_GUIDES = (
    "the Hugging Face guides “Methods and tools for efficient training on a single GPU” and “Model "
    "training anatomy”"
)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each configuration that was measured over one whole epoch."""
    if not results.guide_rows:
        return None
    published = any(row.published for row in results.guide_rows)
    return Content(
        title="Measured as in the Hugging Face guides",
        text=(*_text(), *(_published_text() if published else ())),
        tables=(
            Table(
                columns=_columns(),
                rows=tuple(_row(dataset, results, row) for row in results.guide_rows),
            ),
        ),
        notes=mark_notes(results, [row.configuration for row in results.guide_rows]),
    )


def _text() -> tuple[str, ...]:
    return (
        "“By hand” is the guides' method, one configuration at a time: time and samples/s over one "
        "epoch with the warm-up, and the memory that NVML reports after training, not its peak.",
        "The other columns are the steady state and true peaks.",
    )


def _published_text() -> tuple[str, ...]:
    context, with_weights = guide().context_mib, guide().context_and_weights_mib
    return (
        f"“{guide().gpu}”: what {_GUIDES} published for a {guide().gpu} with 16 GB. A bare CUDA "
        f"context took {context:,} MiB there, and {with_weights:,} MiB with the model's weights.",
    )


def _columns() -> tuple[Column, ...]:
    figures = [
        ("by_hand_seconds", "by hand, s", Format.NUMBER),
        ("by_hand_samples_per_second", "by hand, samples/s", Format.NUMBER),
        ("by_hand_memory_mib", "by hand, MiB", Format.COUNT),
    ]
    steady = Column(
        key="samples_per_second", heading="samples/s", format=Format.NUMBER, marks="marks"
    )
    peaks = [
        ("peak_allocated_bytes", "peak allocated, MiB", Format.MEBIBYTES),
        ("peak_reserved_bytes", "peak reserved, MiB", Format.MEBIBYTES),
        ("device_peak_bytes", "peak of the GPU, MiB", Format.MEBIBYTES),
    ]
    published = [
        ("published_seconds", f"{guide().gpu}, s", Format.TEXT),
        ("published_samples_per_second", f"{guide().gpu}, samples/s", Format.TEXT),
        ("published_memory_mib", f"{guide().gpu}, MiB", Format.COUNT),
    ]
    return (
        CONFIGURATION,
        *(Column(key=key, heading=heading, format=form) for key, heading, form in figures),
        steady,
        *(Column(key=key, heading=heading, format=form) for key, heading, form in peaks),
        *(Column(key=key, heading=heading, format=form) for key, heading, form in published),
    )


def _row(dataset: Dataset, results: EnvironmentResults, row: GuideRow) -> dict[str, Any]:
    measured, published = row.configuration.row, row.published
    return {
        **row_of(dataset, results, row.configuration),
        "by_hand_seconds": measured.get("hf_guide_seconds"),
        "by_hand_samples_per_second": measured.get("hf_guide_samples_per_second"),
        "by_hand_memory_mib": measured.get("hf_guide_memory_mib"),
        "peak_allocated_bytes": measured.get("peak_allocated_bytes"),
        "peak_reserved_bytes": measured.get("peak_reserved_bytes"),
        "device_peak_bytes": measured.get("device_peak_bytes"),
        "published_seconds": published.seconds if published else None,
        "published_samples_per_second": published.samples_per_second if published else None,
        "published_memory_mib": published.memory_mib if published else None,
    }


SECTION = EnvironmentSection(name="hf_guide", make=make)
