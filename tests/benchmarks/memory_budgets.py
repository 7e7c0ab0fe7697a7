"""A picture of memory budgets: memory against throughput, beside checkpointing and keeping all.

    python -m tests.benchmarks.memory_budgets FILE.png

Each line is compiled code with less and less memory for activations, of recorded runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.storage.run_reader import read_run_folder
from orchestrator.storage.tables.rows import Row
from orchestrator.units import GIB
from tests.benchmarks.technique_priors import RESULTS


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """The rows of one recorded run that differ in their activations only."""

    title: str
    run: Path
    common: dict[str, object]
    """Column -> the value of all rows."""

    def rows(self) -> Iterator[Row]:
        """The measured rows."""
        for row in read_run_folder(self.run).trials.rows:
            is_common = all(row.get(column) == value for column, value in self.common.items())
            if is_common and row.get("samples_per_second"):
                yield row


_GRIDS = RESULTS / "2026-11-24-grids-h200"
PANELS = (
    Panel(
        title="Decoder of 1.2 B, 16 × 1,024 tokens",
        run=_GRIDS / "decoder",
        common={"micro_batch": 16, "loss": "chunked", "attention": "auto"},
    ),
    Panel(
        title="ViT-large, 64 images",
        run=_GRIDS / "vit",
        common={"micro_batch": 64, "precision": "bf16", "dataloader": "workers_4"},
    ),
    Panel(
        title="BERT-large, 32 × 512 tokens\n(dropout: budgets of 0.5 and less train wrongly)",
        run=RESULTS / "2026-11-24-budgets_bert_large-h200",
        common={"micro_batch": 32},
    ),
)


def draw(axes: Axes, panel: Panel) -> None:
    """Draw one panel: the line of compiled code, and the points of eager code."""
    compiled = []
    for row in panel.rows():
        point = (row["device_peak_bytes"] / GIB, row["samples_per_second"], row["activations"])
        if row["compile"] == "none":
            axes.plot(point[0], point[1], "s", color="tab:orange")
            _label(axes, f"eager, {point[2]}", *point[:2])
        elif point[2] == "checkpoint":
            axes.plot(point[0], point[1], "^", color="tab:green")
            _label(axes, "compiled, checkpoint", *point[:2])
        else:
            compiled.append(point)
    compiled.sort()
    axes.plot([point[0] for point in compiled], [point[1] for point in compiled], "o-")
    for memory, speed, activations in compiled:
        _label(axes, str(activations).removeprefix("budget_"), memory, speed, above=True)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel("memory, GiB")
    axes.margins(x=0.2, y=0.15)


def _label(axes: Axes, text: str, x: float, y: float, *, above: bool = False) -> None:
    """Write a name beside its point; those of the line stand upright above it."""
    offset, rotation = ((-3, 6), 90) if above else ((6, -3), 0)
    axes.annotate(
        text, (x, y), xytext=offset, textcoords="offset points", fontsize=7, rotation=rotation
    )


def main() -> None:
    """Write the picture."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    for number, panel in enumerate(PANELS):
        draw(figure.add_subplot(1, len(PANELS), number + 1), panel)
    figure.axes[0].set_ylabel("samples per second")
    figure.savefig(sys.argv[1], dpi=110)


if __name__ == "__main__":
    main()
