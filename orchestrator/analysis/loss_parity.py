"""The numerical guard: rows whose losses are not those of a reference at equal seed, data and effective batch.

What is compared are means over each half of the training, relative to the reference's mean over the whole. Two rows
that draw the same random numbers (they differ only in how activations are kept or data is loaded) must agree to
their precision's rounding. Others train alike but not equally: another split of the batch, precision or kernel drops
out other activations, another loop orders the data otherwise. They may differ by what the reference's own losses
scatter from step to step, which is wide for few steps and small batches: what the guard is sure of, it says, and it
is silent about the rest.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.techniques import AXES
from orchestrator.analysis.pareto import TRAINS_DIFFERENTLY, Row, training_of

ROUNDING: Mapping[str, float] = {
    "fp32": 1e-3,
    "tf32": 5e-3,
    "fp16": 2e-2,
    "bf16": 2e-2,
    "bf16_weights": 5e-2,
}
"""Precision -> how far the mean losses of rows with the same draws may differ, relative: several times what those of
the runs in docs/results do."""

OTHER_DRAWS = 0.1
"""What rows with other draws may always differ by."""
OTHER_BATCH = 0.5
"""What a reference of another effective batch, which sees other data, may always differ by besides."""
SCATTER = 3.0
"""Standard errors of the difference of two means beyond which it is not chance."""

_SAME_DRAWS = ("activations", "dataloader")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A row that trains differently than it should."""

    trial_id: str
    reference_id: str
    """The row it was compared with; empty where its losses speak against it alone."""
    factor: float
    """Its mean loss to the reference's, the same steps of both; NaN where it is not a number."""
    text: str

    @property
    def warning(self) -> str:
        """As it stands among a row's warnings."""
        return f"{TRAINS_DIFFERENTLY}: {self.text}"


def findings(
    rows: Iterable[Row], losses: Mapping[str, Sequence[float]], axes: Mapping[str, str]
) -> tuple[Finding, ...]:
    """The ok rows that train differently than they should; ``losses`` are each trial's, per optimizer step."""
    by_environment: dict[str, list[Row]] = {}
    for row in rows:
        if row["outcome"] == "ok" and losses.get(row["trial_id"]):
            by_environment.setdefault(row["environment_id"], []).append(row)
    found: list[Finding | None] = []
    for own in by_environment.values():
        sound = [row for row in own if all(map(math.isfinite, losses[row["trial_id"]]))]
        references = _References(sound, axes)
        found += [_judge(row, references, losses, axes) for row in own]
    return tuple(finding for finding in found if finding is not None)


class _References:
    """Which rows a row of one environment has to agree with."""

    def __init__(self, rows: Sequence[Row], axes: Mapping[str, str]) -> None:
        self._axes = axes
        self._groups: dict[tuple[str, int], Row] = {}
        self._alike: dict[tuple[object, ...], Row] = {}
        for row in sorted(rows, key=self._plainness):
            self._groups.setdefault(_group(row), row)
            self._alike.setdefault(_draws(row, axes), row)

    def of(self, row: Row) -> tuple[Row, ...]:
        """The plainest row with the same draws, and the plainest row of its group, itself left out."""
        both = (self._alike.get(_draws(row, self._axes)), self._plainest(row))
        chosen = {other["trial_id"]: other for other in both if other is not None}
        return tuple(other for trial_id, other in chosen.items() if trial_id != row["trial_id"])

    def _plainest(self, row: Row) -> Row | None:
        """Of the row's training at its effective batch; where that was only ever accumulated, from a group beside it:
        the same training at the nearest other batch, else another training at the same batch."""
        training, batch = _group(row)
        own = self._groups.get((training, batch))
        if own is None or own["accumulation"] == 1:
            return own
        beside = {
            (kind != training, abs(math.log(size / batch))): other
            for (kind, size), other in self._groups.items()
            if other["accumulation"] == 1 and (kind == training or size == batch)
        }
        return beside[min(beside)] if beside else own

    def _plainness(self, row: Row) -> tuple[int, int]:
        own = {axis: row[column] for axis, column in self._axes.items() if axis in AXES}
        batch = ("micro_batch", "accumulation")
        return row["accumulation"], sum(
            v != AXES[axis].default for axis, v in own.items() if axis not in batch
        )


def _group(row: Row) -> tuple[str, int]:
    return training_of(row["equivalence"]), row["effective_batch"]


def _draws(row: Row, axes: Mapping[str, str]) -> tuple[object, ...]:
    """What decides which random numbers a row draws, and in what precision and order it computes."""
    return row["equivalence"], *(
        row[column] for axis, column in axes.items() if axis not in _SAME_DRAWS
    )


def _judge(
    row: Row,
    references: _References,
    losses: Mapping[str, Sequence[float]],
    axes: Mapping[str, str],
) -> Finding | None:
    own = losses[row["trial_id"]]
    broken = next((step for step, loss in enumerate(own) if not math.isfinite(loss)), None)
    if broken is not None:
        text = f"loss is {own[broken]} from step {broken + 1} on"
        return Finding(trial_id=row["trial_id"], reference_id="", factor=math.nan, text=text)
    for reference in references.of(row):
        if ratio := factor(compared(row, reference, own, losses[reference["trial_id"]], axes)):
            text = _words(ratio, row["accumulation"] / reference["accumulation"])
            return Finding(
                trial_id=row["trial_id"],
                reference_id=reference["trial_id"],
                factor=ratio,
                text=text,
            )
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Half:
    """Some steps of a row beside the same of its reference."""

    begin: int
    """The first of them, from 0."""
    end: int
    """One after the last."""
    own: float
    """Mean loss."""
    reference: float
    scale: float
    """The reference's mean absolute loss over all steps that are compared."""
    allowed: float
    """What the means may differ by, as a share of the scale."""

    @property
    def apart(self) -> float:
        """What they do differ by, as a share of the scale."""
        return abs(self.own - self.reference) / self.scale


def compared(
    row: Row, reference: Row, own: Sequence[float], others: Sequence[float], axes: Mapping[str, str]
) -> tuple[Half, ...]:
    """What the guard compares of two rows' losses.

    Rows with the same draws must agree to within rounding, others as far as chance allows. Before the first update
    the kind of training does not matter; afterwards it does, and rows of unlike kinds are compared in that step alone.
    """
    same_draws = _draws(reference, axes) == _draws(row, axes)
    precision = str(row.get(axes.get("precision", "precision")) or "fp32")
    rounding = ROUNDING.get(precision, 0.0) if same_draws else None
    further = OTHER_BATCH if row["effective_batch"] != reference["effective_batch"] else 0.0
    return halves(
        own if _group(row)[0] == _group(reference)[0] else own[:1], others, rounding, further
    )


def halves(
    own: Sequence[float], reference: Sequence[float], rounding: float | None, further: float
) -> tuple[Half, ...]:
    """Each half of the steps that both have; they may differ by ``rounding``, or where that is None, by as much as
    chance and ``further`` allow."""
    steps, scatter = min(len(own), len(reference)), _scatter(reference)
    scale = statistics.fmean(map(abs, reference[:steps])) or math.ulp(1.0)
    found = []
    for begin, end in itertools.pairwise((0, steps) if steps < 2 else (0, steps // 2, steps)):
        chance = SCATTER * scatter / scale * math.sqrt(2 / (end - begin))
        found.append(
            Half(
                begin=begin,
                end=end,
                own=statistics.fmean(own[begin:end]),
                reference=statistics.fmean(reference[begin:end]),
                scale=scale,
                allowed=OTHER_DRAWS + further + chance if rounding is None else rounding,
            )
        )
    return tuple(found)


def factor(found: Sequence[Half]) -> float | None:
    """A row's mean loss to its reference's; where only one half of the steps is apart, that half's; None if none is."""
    apart = [half for half in found if half.apart > half.allowed]
    if len(apart) == len(found):
        return (
            sum(half.own * (half.end - half.begin) for half in found)
            / found[-1].end
            / found[0].scale
        )
    if not apart:
        return None
    half = max(apart, key=lambda one: one.apart)
    return half.own / half.reference if half.reference else math.inf


def _scatter(losses: Sequence[float]) -> float:
    """The standard deviation from step to step, a trend left out (von Neumann's successive differences)."""
    squares = [(after - before) ** 2 for before, after in itertools.pairwise(losses)]
    return math.sqrt(statistics.fmean(squares) / 2) if squares else 0.0


def times(factor: float) -> str:
    """A factor with the digits that tell it from one."""
    return (
        f"{factor:.1f}"
        if not 0.5 < factor < 1.5
        else f"{factor:.2f}"
        if abs(factor - 1) > 0.01
        else f"{factor:.4f}"
    )


def _words(factor: float, accumulation: float) -> str:
    text = f"loss {times(factor)} times its reference's"
    if accumulation > 1 and 0.8 < factor / accumulation < 1.25:
        return f"{text}, as is its accumulation: this model does not divide by it, and gradients are as much too large"
    return text
