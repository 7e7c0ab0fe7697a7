"""The effect of each technique, from pairs of configurations that differ in it alone."""

from __future__ import annotations

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.effects import TechniqueEffect
from orchestrator.reporting.content import Column, Content, EnvironmentSection, Format, Row, Table

MEMORY_RATIO = Column(key="memory_ratio", heading="memory", format=Format.CHANGE, better="less")
SPEED_RATIO = Column(key="speed_ratio", heading="samples/s", format=Format.CHANGE, better="more")
COLUMNS = (
    Column(key="axis", heading="axis"),
    Column(key="value", heading="with"),
    Column(key="baseline", heading="instead of"),
    Column(key="training", heading="training"),
    MEMORY_RATIO,
    SPEED_RATIO,
    Column(key="micro_batch", heading="at micro-batch", format=Format.COUNT),
    Column(key="pairs", heading="pairs", format=Format.COUNT),
)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each value of each axis, except the values of the baseline."""
    if not results.effects:
        return None
    return Content(
        title="Effect of each technique",
        text=(_text(results),),
        tables=(Table(columns=COLUMNS, rows=tuple(map(_row, results.effects))),),
    )


def _text(results: EnvironmentResults) -> str:
    """A sentence about the compared pairs and their micro-batch."""
    pairs = "Medians over pairs of configurations that differ in nothing else"
    accumulation = "accumulation is compared at equal effective batch"
    size = results.useful_micro_batch
    if size is None:
        return f"{pairs}; {accumulation}."
    useful = f"at micro-batch {size}, where the baseline's techniques are about as fast as they get"
    return f"{pairs}, {useful}, or the largest below it with a pair; {accumulation}."


def _row(effect: TechniqueEffect) -> Row:
    changed = "other batch" if effect.axis == "micro_batch" else "other recipe"
    return {
        "axis": effect.axis,
        "value": str(effect.value),
        "baseline": str(effect.baseline),
        "training": "same" if effect.same_training else changed,
        "memory_ratio": effect.memory_ratio,
        "speed_ratio": effect.speed_ratio,
        "micro_batch": effect.micro_batch,
        "pairs": effect.pairs,
    }


SECTION = EnvironmentSection(name="effects", make=make)
