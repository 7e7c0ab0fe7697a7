"""How much a page can hold: of very many configurations, those that answer something and an even choice of the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orchestrator.analysis.frame.points import Points, fronts
from orchestrator.analysis.summary import Summary

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
    return replace(
        summary,
        cohorts=tuple(replace(one, points=_chosen(one.points, every)) for one in summary.cohorts),
    )


def _chosen(points: Points, every: int) -> Points:
    stays = np.arange(len(points)) % every == 0
    for front in fronts(points, within=lambda points: points.equivalences).values():
        stays[front] = True
    return points.where(stays)


def left_out(whole: Summary, shown: Summary) -> str:
    """What a page says of the points that it does not hold; empty when it holds all."""
    total, held = (
        sum(len(cohort.points) for cohort in summary.cohorts) for summary in (whole, shown)
    )
    if held == total:
        return ""
    return (
        f"map and table hold {held:,} of {total:,} configurations: every one that none of its training and batch beats,"
        " and an even choice of the others; trials.parquet holds all"
    )
