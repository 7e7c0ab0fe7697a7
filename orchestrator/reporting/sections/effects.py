"""What each technique did instead of the baseline's, over pairs that differ in nothing else."""

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
    Column(key="pairs", heading="pairs", format=Format.COUNT),
)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each value of each axis but the baseline's."""
    if not results.effects:
        return None
    return Content(
        title="Effect of each technique",
        text=(
            "Medians over pairs of configurations that differ in nothing else; accumulation is "
            "compared at equal effective batch.",
        ),
        tables=(Table(columns=COLUMNS, rows=tuple(map(_row, results.effects))),),
    )


def _row(effect: TechniqueEffect) -> Row:
    return {
        "axis": effect.axis,
        "value": str(effect.value),
        "baseline": str(effect.baseline),
        "training": _training(effect),
        "memory_ratio": effect.memory_ratio,
        "speed_ratio": effect.speed_ratio,
        "pairs": effect.pairs,
    }


def _training(effect: TechniqueEffect) -> str:
    """Whether the technique leaves the training as it was, in a word or two."""
    if effect.same_training:
        return "same"
    if effect.axis == "micro_batch":
        return "other batch"
    return "other recipe"


SECTION = EnvironmentSection(name="effects", make=make)
