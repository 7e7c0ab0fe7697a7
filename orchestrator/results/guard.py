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
from orchestrator.results.frontier import TRAINS_DIFFERENTLY, Row, training_of

ROUNDING: Mapping[str, float] = {"fp32": 1e-3, "tf32": 5e-3, "fp16": 2e-2, "bf16": 2e-2, "bf16_weights": 5e-2}
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
        found += [_judge(row, references, losses) for row in own]
    return tuple(finding for finding in found if finding is not None)


class _References:
    """Which rows a row of one environment has to agree with."""

    def __init__(self, rows: Sequence[Row], axes: Mapping[str, str]) -> None:
        self._axes = axes
        self._groups: dict[tuple[str, int], Row] = {}
        self._alike: dict[tuple[object, ...], Row] = {}
        for row in sorted(rows, key=self._plainness):
            self._groups.setdefault(_group(row), row)
            self._alike.setdefault(self.draws(row), row)

    def of(self, row: Row) -> tuple[Row, ...]:
        """The plainest row with the same draws, and the plainest row of its group, itself left out."""
        both = (self._alike.get(self.draws(row)), self._plainest(row))
        chosen = {other["trial_id"]: other for other in both if other is not None}
        return tuple(other for trial_id, other in chosen.items() if trial_id != row["trial_id"])

    def draws(self, row: Row) -> tuple[object, ...]:
        """What decides which random numbers a row draws, and in what precision and order it computes."""
        return row["equivalence"], *(row[column] for axis, column in self._axes.items() if axis not in _SAME_DRAWS)

    def precision(self, row: Row) -> str:
        """The precision chosen, fp32 where that is no axis."""
        return str(row.get(self._axes.get("precision", "precision")) or "fp32")

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
        return row["accumulation"], sum(v != AXES[axis].default for axis, v in own.items() if axis not in batch)


def _group(row: Row) -> tuple[str, int]:
    return training_of(row["equivalence"]), row["effective_batch"]


def _judge(row: Row, references: _References, losses: Mapping[str, Sequence[float]]) -> Finding | None:
    own = losses[row["trial_id"]]
    broken = next((step for step, loss in enumerate(own) if not math.isfinite(loss)), None)
    if broken is not None:
        text = f"loss is {own[broken]} from step {broken + 1} on"
        return Finding(trial_id=row["trial_id"], reference_id="", factor=math.nan, text=text)
    for reference in references.of(row):
        same_draws = references.draws(reference) == references.draws(row)
        rounding = ROUNDING.get(references.precision(row), 0.0) if same_draws else None
        further = OTHER_BATCH if row["effective_batch"] != reference["effective_batch"] else 0.0
        # Before the first update, the kind of training does not matter; afterwards it does.
        alike = own if _group(row)[0] == _group(reference)[0] else own[:1]
        if ratio := factor(alike, losses[reference["trial_id"]], rounding, further):
            text = _words(ratio, row["accumulation"] / reference["accumulation"])
            return Finding(trial_id=row["trial_id"], reference_id=reference["trial_id"], factor=ratio, text=text)
    return None


def factor(own: Sequence[float], reference: Sequence[float], rounding: float | None, further: float) -> float | None:
    """A row's mean loss to its reference's; where only one half of the steps is apart, that half's.

    None where they agree: to within ``rounding``, or where that is None, as far as chance and ``further`` allow.
    """
    steps, scatter = min(len(own), len(reference)), _scatter(reference)
    scale = statistics.fmean(map(abs, reference[:steps])) or math.ulp(1.0)
    halves = [slice(0, steps)] if steps < 2 else [slice(0, steps // 2), slice(steps // 2, steps)]
    apart: dict[float, float] = {}
    for half in halves:
        mine, theirs = statistics.fmean(own[half]), statistics.fmean(reference[half])
        chance = SCATTER * scatter / scale * math.sqrt(2 / (half.stop - half.start))
        allowed = OTHER_DRAWS + further + chance if rounding is None else rounding
        distance = abs(mine - theirs) / scale
        if distance > allowed:
            apart[distance] = mine / theirs if theirs else math.inf
    whole = statistics.fmean(own[:steps]) / scale
    return None if not apart else whole if len(apart) == len(halves) else apart[max(apart)]


def _scatter(losses: Sequence[float]) -> float:
    """The standard deviation from step to step, a trend left out (von Neumann's successive differences)."""
    squares = [(after - before) ** 2 for before, after in itertools.pairwise(losses)]
    return math.sqrt(statistics.fmean(squares) / 2) if squares else 0.0


def times(factor: float) -> str:
    """A factor with the digits that tell it from one."""
    return f"{factor:.1f}" if not 0.5 < factor < 1.5 else f"{factor:.2f}" if abs(factor - 1) > 0.01 else f"{factor:.4f}"


def _words(factor: float, accumulation: float) -> str:
    text = f"loss {times(factor)} times its reference's"
    if accumulation > 1 and 0.8 < factor / accumulation < 1.25:
        return f"{text}, as is its accumulation: this model does not divide by it, and gradients are as much too large"
    return text
