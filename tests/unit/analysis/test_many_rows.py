"""Very many rows: looked up instead of copied, pages that hold what answers, and work that grows with the rows only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from orchestrator.analysis.frame.rows import views_of
from orchestrator.analysis.summary import Summary, summarize, table_of_fronts

from orchestrator.analysis.pareto import Point, frontier
from orchestrator.reporting.html import page as html
from orchestrator.reporting.html.downsampling import thinned
from orchestrator.storage.run_metadata import Run
from orchestrator.storage.tables import parquet
from tests.support.records import COLUMNS, make_grid


@pytest.fixture(scope="module")
def summary() -> Summary:
    """The invented grid, looked up in its table."""
    trials = parquet.trials_table(make_grid(), COLUMNS, Run(name="many"))
    return summarize(
        views_of(trials), parquet.axes_of(trials), Run(name="many"), parquet.environments_of(trials)
    )


def test_a_view_is_its_row() -> None:
    trials = parquet.trials_table(make_grid()[:20], COLUMNS)
    views, rows = views_of(trials), trials.to_pylist()
    assert [dict(view) for view in views] == rows
    assert views[0].get("no such column") is None


def test_plain_rows_sum_up_as_those_of_a_table_and_repeats_are_one_point() -> None:
    trials = parquet.trials_table(make_grid(repeats=3), COLUMNS)
    about = parquet.axes_of(trials), Run(), parquet.environments_of(trials)
    (looked_up,), (plain,) = (
        summarize(rows, *about).cohorts for rows in (views_of(trials), trials.to_pylist())
    )
    assert [*looked_up.points] == [*plain.points]
    assert {point.repeats for point in plain.points} == {3}
    assert (looked_up.fronts, looked_up.verdicts, looked_up.effects) == (
        plain.fronts,
        plain.verdicts,
        plain.effects,
    )
    middle = sorted(row["samples_per_second"] for row in trials.to_pylist()[:3])[1]
    assert plain.points[0].samples_per_second == middle


def test_only_columns_that_are_read_become_python_values() -> None:
    trials = parquet.trials_table(make_grid()[:20], COLUMNS)
    listed: list[str] = []

    class Watched:
        column_names, num_rows, num_columns = (
            trials.column_names,
            trials.num_rows,
            trials.num_columns,
        )

        def __getitem__(self, name: str) -> Any:
            listed.append(name)
            return trials[name]

    for view in views_of(Watched()):  # type: ignore[arg-type]
        assert view["outcome"]
        assert view["samples_per_second"] != 0
    assert listed == ["outcome", "samples_per_second"]


def test_a_thinned_page_holds_every_answer_and_says_what_it_left_out(
    summary: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = summary.cohorts[0]
    shown = thinned(summary, 40).cohorts[0]
    assert 0 < len(shown.points) < len(whole.points)
    assert {id(p) for p, _, _ in table_of_fronts(summary)} <= {id(point) for point in shown.points}
    assert (shown.fronts, shown.verdicts, shown.effects) == (
        whole.fronts,
        whole.verdicts,
        whole.effects,
    )
    assert thinned(summary, len(whole.points)) is summary
    monkeypatch.setattr(html, "thinned", lambda one: thinned(one, 40))
    page = html.render(summary)
    assert f"hold {len(shown.points):,} of {len(whole.points):,} configurations" in page
    data = re.search(r'id="data">(.*?)</script>', page)
    assert data is not None
    assert len(json.loads(data[1])["columns"]["trial"]) == len(shown.points)


def test_a_frontier_asks_each_point_once_for_each_axis(summary: Summary) -> None:
    points, asked = summary.cohorts[0].points, 0

    def counted() -> Iterator[Any]:
        def lean(point: Point) -> float:
            nonlocal asked
            asked += 1
            return -point.memory_bytes

        yield lean
        yield lambda point: point.samples_per_second

    assert frontier(points, tuple(counted())) == summary.cohorts[0].across
    assert asked == len(points)
