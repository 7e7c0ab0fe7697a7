"""The breakdown of memory and time of the profiled configurations on the Pareto front."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.anatomy.time.operations import COMMUNICATION, GUIDE_GROUPS, IDLE, MOVEMENT, OPTIMIZER
from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD
from jobs.anatomy_record import Anatomy
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.profiles import anatomy_of
from orchestrator.reporting.configurations import CONFIGURATION
from orchestrator.reporting.content import Column, Content, Format, Row, Table

REST = "all else"
_OF_THE_STEP = (MOVEMENT, COMMUNICATION, OPTIMIZER, IDLE)

Profiled = Sequence[tuple[str, Anatomy]]
"""Label and anatomy of each configuration."""
Parts = Mapping[str, float]
"""Name of a part -> its bytes, seconds or share."""


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """Three tables: memory by use, time by kind of operation, passes by class of module."""
    anatomies = anatomies_of(dataset, results.front)
    labels = {own.trial_ids[0]: dataset.label(own.choices) for own in results.front}
    profiled = [(labels[trial_id], anatomy) for trial_id, anatomy in anatomies.items()]
    if not profiled:
        return None
    memory = [(label, anatomy.values("memory")) for label, anatomy in profiled]
    modules = [(label, _shares_of_sum(anatomy.values("modules"))) for label, anatomy in profiled]
    held = "Memory at the peak, by what held it."
    passes = (
        "Forward and backward pass by class of module. torch.nn's blocks but normalizations count "
        "with the module that they are in."
    )
    tables = (
        _breakdown(memory, 0.01, Format.MEMORY, "memory", held),
        _time(profiled),
        _breakdown([own for own in modules if own[1]], 0.03, Format.SHARE, "modules", passes),
    )
    return Content(
        title="Where memory and time go",
        text=(
            "Each configuration was profiled after its counted steps.",
            f"Time: {', '.join(GUIDE_GROUPS)} are shares of the three together; the other columns "
            "are shares of a step.",
        ),
        tables=tuple(table for table in tables if table.rows),
    )


def _breakdown(
    parts: Sequence[tuple[str, Parts]], small: float, format: Format, name: str, caption: str
) -> Table:
    """A part has a column if it is above the share ``small`` in any configuration."""
    large: dict[str, None] = {}
    for _, values in parts:
        whole = sum(values.values())
        large |= {name: None for name, value in values.items() if value > small * whole}
    rows = []
    for label, values in parts:
        row: dict[str, Any] = {part: values.get(part) or None for part in large}
        rest = sum(value for part, value in values.items() if part not in large)
        # Rounding of floats can leave a tiny sum although no part is left.
        row[REST] = rest if round(rest, 3) else None
        rows.append({"configuration": label, **row})
    columns = [Column(key=part, heading=part, format=format) for part in (*large, REST)]
    return Table(name=name, caption=caption, columns=(CONFIGURATION, *columns), rows=tuple(rows))


def _time(profiled: Profiled) -> Table:
    kinds = (*GUIDE_GROUPS, *_OF_THE_STEP)
    columns = [
        CONFIGURATION,
        *(Column(key=name, heading=name, format=Format.SHARE) for name in kinds),
        Column(key="backward_to_forward", heading=BACKWARD_TO_FORWARD, format=Format.NUMBER),
        Column(key="mfu", heading="MFU", format=Format.SHARE),
    ]
    rows: list[Row] = []
    for label, anatomy in profiled:
        rows.append(
            {
                "configuration": label,
                **_shares(anatomy),
                "backward_to_forward": anatomy.values("phases").get(BACKWARD_TO_FORWARD),
                "mfu": anatomy.values("efficiency").get("MFU"),
            }
        )
    return Table(
        name="time", caption="Time by kind of operation.", columns=tuple(columns), rows=tuple(rows)
    )


def _shares_of_sum(parts: Parts) -> Parts:
    whole = sum(parts.values())
    return {name: value / whole for name, value in parts.items()} if whole else {}


def _shares(anatomy: Anatomy) -> dict[str, float | None]:
    """The three groups of the guides are shares of their sum; others of a step."""
    seconds = anatomy.values("operations")
    shares: dict[str, float | None] = {}
    of_the_groups = sum(seconds.get(name, 0.0) for name in GUIDE_GROUPS)
    wholes = {GUIDE_GROUPS: of_the_groups, _OF_THE_STEP: sum(seconds.values())}
    for names, whole in wholes.items():
        for name in names:
            part = seconds.get(name)
            shares[name] = part / whole if part and whole else None
    return shares


def anatomies_of(dataset: Dataset, configurations: Iterable[Configuration]) -> dict[str, Anatomy]:
    """First trial of each profiled configuration -> its anatomy, at its own speed."""
    found = (
        (own.trial_ids[0], anatomy_of(dataset, own.trial_ids, own.row)) for own in configurations
    )
    return {trial_id: anatomy for trial_id, anatomy in found if anatomy is not None}


def asked_first(results: EnvironmentResults) -> list[Configuration]:
    """All configurations, in the order of interest to a reader: front, picks, then the others."""
    ordered = (*results.front, *results.picks, *results.configurations)
    return list({configuration.trial_ids: configuration for configuration in ordered}.values())
