"""Where the memory and the time of the Pareto front's profiled configurations went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.anatomy.rules_of_thumb import PAPER, SHARES
from jobs.anatomy.time.operations import COMMUNICATION, GUIDE_GROUPS, IDLE, MOVEMENT, OPTIMIZER
from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD
from jobs.anatomy_record import Anatomy
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.reporting.anatomies import anatomies_of
from orchestrator.reporting.configurations import CONFIGURATION
from orchestrator.reporting.content import Column, Content, EnvironmentSection, Format, Row, Table

SMALL_MEMORY = 0.01
"""Classes of memory below this share of every configuration are shown together."""
SMALL_MODULE = 0.03
"""So are classes of modules below this share of every configuration's passes."""
REST = "all else"
PAPER_ROW = "Data Movement Is All You Need (V100)"
_OF_THE_STEP = (MOVEMENT, COMMUNICATION, OPTIMIZER, IDLE)

Profiled = Sequence[tuple[str, Anatomy]]
"""Label and anatomy of each configuration."""


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """Memory by what held it, time by kind of operation, passes by class of module."""
    anatomies = anatomies_of(dataset, results.front)
    profiled = []
    for configuration in results.front:
        anatomy = anatomies.get(configuration.trial_ids[0])
        if anatomy is not None:
            profiled.append((dataset.label(configuration.choices), anatomy))
    if not profiled:
        return None
    tables = (_memory(profiled), _time(profiled), _modules(profiled))
    return Content(
        title="Where memory and time go",
        text=_text(),
        tables=tuple(table for table in tables if table.rows),
    )


def _text() -> tuple[str, ...]:
    return (
        "Each configuration was profiled after its counted steps.",
        f"Time: {', '.join(GUIDE_GROUPS)} are shares of the three together, beside those of "
        f"{PAPER}; the other columns are shares of a step.",
        "A rule is one of the guides' rules of thumb; anatomy.parquet lists them.",
    )


def _memory(profiled: Profiled) -> Table:
    parts = [(label, anatomy.values("memory")) for label, anatomy in profiled]
    return _breakdown(
        parts, SMALL_MEMORY, Format.MEMORY, "memory", "Memory at the peak, by what held it."
    )


def _modules(profiled: Profiled) -> Table:
    parts = []
    for label, anatomy in profiled:
        spent = anatomy.values("modules")
        whole = sum(spent.values())
        if whole:
            parts.append((label, {name: seconds / whole for name, seconds in spent.items()}))
    caption = (
        "Forward and backward pass by class of module. torch.nn's blocks but normalizations count "
        "with the module that they are in."
    )
    return _breakdown(parts, SMALL_MODULE, Format.SHARE, "modules", caption)


def _breakdown(
    parts: Sequence[tuple[str, Mapping[str, float]]],
    small: float,
    format: Format,
    name: str,
    caption: str,
) -> Table:
    """A column for each part above the share ``small`` anywhere, and one for all others."""
    large = _large([own for _, own in parts], small)
    rows = []
    for label, own in parts:
        rest = sum(value for part, value in own.items() if part not in large)
        values = {part: own.get(part) or None for part in large}
        rows.append({"configuration": label, **values, REST: rest if round(rest, 3) else None})
    columns = [Column(key=part, heading=part, format=format) for part in (*large, REST)]
    return Table(name=name, caption=caption, columns=(CONFIGURATION, *columns), rows=tuple(rows))


def _large(parts: Iterable[Mapping[str, float]], small: float) -> list[str]:
    names: dict[str, None] = {}
    for own in parts:
        whole = sum(own.values())
        names |= {name: None for name, value in own.items() if value > small * whole}
    return list(names)


def _time(profiled: Profiled) -> Table:
    shares = [
        Column(key=name, heading=name, format=Format.SHARE)
        for name in (*GUIDE_GROUPS, *_OF_THE_STEP)
    ]
    columns = (
        CONFIGURATION,
        *shares,
        Column(key="backward_to_forward", heading=BACKWARD_TO_FORWARD, format=Format.NUMBER),
        Column(key="mfu", heading="MFU", format=Format.SHARE),
        Column(key="rules", heading="rules held"),
    )
    rows: list[Row] = [
        {"configuration": label, **_shares(anatomy), **_figures(anatomy)}
        for label, anatomy in profiled
    ]
    rows.append({"configuration": PAPER_ROW, **{group: SHARES[group] for group in GUIDE_GROUPS}})
    return Table(
        name="time", caption="Time by kind of operation.", columns=columns, rows=tuple(rows)
    )


def _shares(anatomy: Anatomy) -> dict[str, float | None]:
    spent = anatomy.values("operations")
    three = sum(spent.get(name, 0.0) for name in GUIDE_GROUPS)
    step = sum(spent.values())
    shares: dict[str, float | None] = {}
    for names, whole in ((GUIDE_GROUPS, three), (_OF_THE_STEP, step)):
        for name in names:
            own = spent.get(name)
            shares[name] = own / whole if own and whole else None
    return shares


def _figures(anatomy: Anatomy) -> dict[str, Any]:
    """Backward to forward, MFU, and how many of the rules that apply held."""
    outcomes = [entry.held for entry in anatomy.entries if entry.held is not None]
    return {
        "backward_to_forward": anatomy.values("phases").get(BACKWARD_TO_FORWARD),
        "mfu": anatomy.values("efficiency").get("MFU"),
        "rules": f"{sum(outcomes)} of {len(outcomes)}" if outcomes else None,
    }


SECTION = EnvironmentSection(name="anatomy", make=make, on_page=False)
