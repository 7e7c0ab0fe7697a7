"""Publish a run: from its records to every table and page in its folder."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

from jobs.anatomy_record import Anatomy
from orchestrator.analysis.frame.rows import views_of
from orchestrator.analysis.summary import Summary, summarize, table_of_fronts
from orchestrator.reporting import frontier_plot, markdown
from orchestrator.reporting.html import page
from orchestrator.storage import run_metadata
from orchestrator.storage.tables import parquet
from orchestrator.storage.tables.anatomy_rows import at_speed_of, tellers

MOST_ANATOMIES = 200
"""What a page holds of them: about 10 kB each. ``anatomy.parquet`` holds all."""


def publish(run_folder: Path) -> Summary:
    """Write tables and pages, each beside its place and then moved there; the summary names the files."""
    trials = parquet.load(run_folder, save_tables=True)
    summary = summarize(
        views_of(trials),
        parquet.axes_of(trials),
        parquet.run_of(trials),
        parquet.environments_of(trials),
    )
    summary = replace(summary, anatomies=_anatomies(run_folder, summary))
    parquet.write(
        parquet.frontier_table(trials, table_of_fronts(summary)), run_folder / run_metadata.FRONTIER
    )
    _write(frontier_plot.render(summary), run_folder / run_metadata.PICTURE)
    _write(
        markdown.render(summary, picture=run_metadata.PICTURE).encode(),
        run_folder / run_metadata.REPORT_MARKDOWN,
    )
    _write(page.render(summary).encode(), run_folder / run_metadata.REPORT_HTML)
    written = (
        run_metadata.REPORT_HTML,
        run_metadata.REPORT_MARKDOWN,
        run_metadata.PICTURE,
        run_metadata.FRONTIER,
        run_metadata.TRIALS,
        run_metadata.STEPS,
        run_metadata.ANATOMY,
    )
    files = tuple(run_folder / name for name in written if (run_folder / name).exists())
    return replace(summary, folder=run_folder, files=files)


def summarize_folder(run_folder: Path) -> Summary:
    """The run's summary, nothing written. Raises FileNotFoundError when there are neither records nor a table."""
    trials = parquet.load(run_folder)
    return summarize(
        views_of(trials),
        parquet.axes_of(trials),
        parquet.run_of(trials),
        parquet.environments_of(trials),
    )


def _anatomies(run_folder: Path, summary: Summary) -> dict[str, Anatomy]:
    """Those of the points that a reader asks for first: frontiers, verdicts, then others as far as there is room."""
    taken_apart = parquet.trials_taken_apart(run_folder)
    if not taken_apart:
        return {}
    points = [
        point
        for cohort in summary.cohorts
        for point in (*cohort.front, *cohort.picks, *cohort.points)
    ]
    configurations = {point.trial_ids: point.row for point in points}
    chosen = dict(
        islice(tellers(configurations, summary.follow_ups, taken_apart).items(), MOST_ANATOMIES)
    )
    found = parquet.read_anatomies(run_folder, {*chosen.values()})
    rows = {trial_ids[0]: row for trial_ids, row in configurations.items()}
    return {
        trial_id: at_speed_of(found[teller], rows[trial_id]) for trial_id, teller in chosen.items()
    }


def _write(content: bytes, path: Path) -> None:
    with run_metadata.written_beside(path) as beside:
        beside.write_bytes(content)
