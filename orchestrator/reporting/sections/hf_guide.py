"""The table of the Hugging Face guides, with measurements by the guides' method and by ours."""

from typing import Any

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.published_guide import Published, guide, guide_rows
from orchestrator.reporting.configurations import CONFIGURATION, SPEED, mark_notes, row_of
from orchestrator.reporting.content import Column, Content, Format, Table

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
