"""How much a page can hold: of very many configurations, those that answer something and an even choice of the rest."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.results.frontier import Point
from orchestrator.results.summary import Summary, table_of_fronts

MOST_POINTS = 20_000
"""What a browser still moves smoothly: about 200 bytes of the page each."""


def thinned(summary: Summary, most: int = MOST_POINTS) -> Summary:
    """The summary with about ``most`` points at the most beside those that none of equal training and batch beats.

    Frontiers, verdicts, effects and counts are those of all points.
    """
    total = sum(len(cohort.points) for cohort in summary.cohorts)
    if total <= most:
        return summary
    every = -(-total // most)
    answers = {id(point) for point, _, _ in table_of_fronts(summary)}

    def chosen(points: tuple[Point, ...]) -> tuple[Point, ...]:
        return tuple(point for place, point in enumerate(points) if id(point) in answers or place % every == 0)

    return replace(summary, cohorts=tuple(replace(one, points=chosen(one.points)) for one in summary.cohorts))


def left_out(whole: Summary, shown: Summary) -> str:
    """What a page says of the points that it does not hold; empty when it holds all."""
    total, held = (sum(len(cohort.points) for cohort in summary.cohorts) for summary in (whole, shown))
    if held == total:
        return ""
    return (
        f"map and table hold {held:,} of {total:,} configurations: every one that none of its training and batch beats,"
        " and an even choice of the others; trials.parquet holds all"
    )
