"""Trials taken apart, as tables for the frontier and as the data that the page's script draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.anatomy.rules_of_thumb import PAPER, SHARES
from jobs.anatomy.time.operations import COMMUNICATION, IDLE, MOVEMENT, OPTIMIZER, THREE
from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD
from jobs.anatomy_record import Anatomy, Part
from orchestrator.analysis.pareto import Point
from orchestrator.analysis.summary import Cohort, Summary
from orchestrator.reporting.cells import without_empty
from orchestrator.units import memory, number

LEAST = 0.01
"""Classes of memory that are less of every configuration are shown together."""
LARGE = 0.03
"""So are classes of modules that take less of every configuration's passes."""
REST = "all else"
PAPERS_ROW = "Data Movement Is All You Need (V100)"
_APART = (MOVEMENT, COMMUNICATION, OPTIMIZER, IDLE)
MIB = 2**20


def known(summary: Summary, cohort: Cohort) -> list[tuple[Point, Anatomy]]:
    """The frontier's points that were taken apart."""
    pairs = ((point, summary.anatomy(point)) for point in cohort.front)
    return [(point, anatomy) for point, anatomy in pairs if anatomy is not None]


def memory_rows(summary: Summary, cohort: Cohort) -> list[list[str]]:
    """What each point's memory on the frontier was held for, after a row of headings; empty where none is known."""
    front = known(summary, cohort)
    held = [anatomy.values("memory") for _, anatomy in front]
    large = dict.fromkeys(
        name for own in held for name, size in own.items() if size > LEAST * sum(own.values())
    )
    rows = []
    for (point, _), own in zip(front, held, strict=True):
        rest = sum(size for name, size in own.items() if name not in large)
        rows.append(
            [summary.label(point), *(_size(own.get(name, 0.0)) for name in large), _size(rest)]
        )
    return without_empty([["configuration", *large, REST], *rows]) if rows else []


def time_rows(summary: Summary, cohort: Cohort) -> list[list[str]]:
    """What each step's time went to, beside the paper's shares, after a row of headings; empty where none is known."""
    front = known(summary, cohort)
    if not front:
        return []
    headings = ["configuration", *THREE, *_APART, BACKWARD_TO_FORWARD, "MFU", "rules held"]
    rows = [
        [summary.label(point), *_shares(anatomy), *_ratios(anatomy)] for point, anatomy in front
    ]
    paper = [PAPERS_ROW, *(_percent(SHARES[group]) for group in THREE)]
    rows.append([*paper, *[""] * (len(headings) - len(paper))])
    return without_empty([headings, *rows])


def module_rows(summary: Summary, cohort: Cohort) -> list[list[str]]:
    """The shares of the forward and backward passes by class of module, after a row of headings; empty where none is
    known."""
    told = [(point, anatomy.values("modules")) for point, anatomy in known(summary, cohort)]
    spent = [(point, own) for point, own in told if own]
    large = dict.fromkeys(
        n for _, own in spent for n, took in own.items() if took > LARGE * sum(own.values())
    )
    rows = []
    for point, own in spent:
        whole = sum(own.values())
        rest = sum(took for name, took in own.items() if name not in large)
        shares = [*(own.get(name, 0.0) for name in large), rest]
        rows.append(
            [summary.label(point), *(_percent(took / whole) if took else "" for took in shares)]
        )
    return without_empty([["configuration", *large, REST], *rows]) if rows else []


def notes() -> list[str]:
    """What stands in these tables, in sentences."""
    return [
        "Each configuration was taken apart after its counted steps: the memory at the peak of a step by what it was "
        f"held for; {', '.join(THREE)} as shares of the time of the three, beside {PAPER}; what follows as shares of a "
        "step; then the forward and backward passes by class of module, torch.nn's blocks but normalizations with the "
        "module they are in. Rules are the guides' rules of thumb; anatomy.parquet holds them, one by one."
    ]


def _size(size: float) -> str:
    return memory(size) if round(size) else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _shares(anatomy: Anatomy) -> list[str]:
    spent = anatomy.values("operations")
    three, step = sum(spent.get(name, 0.0) for name in THREE), sum(spent.values())
    shares = [(spent.get(name, 0.0), three) for name in THREE] + [
        (spent.get(name, 0.0), step) for name in _APART
    ]
    return [_percent(own / whole) if own and whole else "" for own, whole in shares]


def _ratios(anatomy: Anatomy) -> list[str]:
    """Backward to forward, MFU, and how many of the rules that apply held."""
    ratio, mfu = (
        anatomy.values("phases").get(BACKWARD_TO_FORWARD),
        anatomy.values("efficiency").get("MFU"),
    )
    ruled = [entry.held for entry in anatomy.entries if entry.held is not None]
    return [
        "" if ratio is None else number(ratio),
        "" if mfu is None else _percent(mfu),
        f"{sum(ruled)} of {len(ruled)}" if ruled else "",
    ]


def script_data(summary: Summary, points: Sequence[Point]) -> dict[str, Any]:
    """Place of a point -> its anatomy as plain values: bytes, seconds; the timeline in MiB."""
    pairs = ((place, summary.anatomy(point)) for place, point in enumerate(points))
    return {str(place): _plain(anatomy) for place, anatomy in pairs if anatomy is not None}


def _plain(anatomy: Anatomy) -> Mapping[str, Any]:
    def pairs(part: Part) -> list[tuple[str, float]]:
        return [
            (name, float(f"{value:.6g}"))
            for name, value in anatomy.values(part).items()
            if value > 0
        ]

    line = anatomy.timeline
    return {
        "memory": pairs("memory"),
        "operations": pairs("operations"),
        "modules": pairs("modules"),
        "step": pairs("step"),
        "ratios": _ratios(anatomy)[:2],
        "rules": [
            [entry.name, entry.value, entry.expected, entry.unit, int(entry.held)]
            for entry in anatomy.entries
            if entry.held is not None
        ],
        "timeline": {
            "seconds": [float(f"{seconds:.5g}") for seconds in line.seconds],
            "mib": {
                name: [round(size / MIB, 1) for size in held] for name, held in line.held.items()
            },
            "phases": [list(phase) for phase in line.phases],
        },
    }
