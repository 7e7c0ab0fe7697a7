"""A reader of a run under chaos: opens its tables and renders its report, again and again.

    python -m tests.chaos.killer.reader FOLDER RESULT

Until SIGTERM it counts its reads, and keeps what went wrong, in RESULT.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from pathlib import Path

import pyarrow.parquet as pq

from orchestrator.analysis.dataset import load_dataset
from orchestrator.reporting import markdown
from orchestrator.reporting.html import page
from orchestrator.reporting.report import Report
from orchestrator.storage import layout

_PAUSE_SECONDS = 0.5
_TABLES = (layout.TRIALS, layout.STEPS, layout.ANATOMY, layout.FRONTIER)
_RENDER_EVERY = 10
"""Reads between two renderings of the whole page, which cost a second each."""


def read(folder: Path, *, with_page: bool) -> int:
    """Open every table and the dataset, and render the report; returns how many were there."""
    opened = 0
    for name in _TABLES:
        if (folder / name).exists():
            pq.read_table(folder / name)
            opened += 1
    report = Report(dataset=load_dataset(folder))
    markdown.render(report, picture=layout.FRONTIER_PLOT)
    if with_page:
        page.render(report)
    return opened + 1


def main() -> None:
    """Read until SIGTERM."""
    folder, result = Path(sys.argv[1]), Path(sys.argv[2])
    counts = {"reads": 0, "absent": 0, "failures": [], "is_over": False}

    def end(*_: object) -> None:
        counts["is_over"] = True

    signal.signal(signal.SIGTERM, end)
    failures: list[str] = []
    reads = absent = 0
    while not counts["is_over"]:
        try:
            reads += read(folder, with_page=reads % _RENDER_EVERY == 0)
        except FileNotFoundError:
            absent += 1  # nothing is written yet, or the folder has another name for a moment
        except Exception:
            failures.append(traceback.format_exc()[-2000:])
        result.write_text(json.dumps({"reads": reads, "absent": absent, "failures": failures}))
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
