"""The effect of each technique, from pairs of configurations that differ in it alone."""

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.technique_effects import (
    TechniqueEffect,
    technique_effects,
    useful_micro_batch,
)
from orchestrator.reporting.content import Column, Content, Format, Row, Table

COLUMNS = (
    Column(key="axis", heading="axis"),
    Column(key="value", heading="with"),
    Column(key="baseline", heading="instead of"),
    Column(key="training", heading="training"),
    Column(key="memory_ratio", heading="memory", format=Format.CHANGE, better="less"),
    Column(key="speed_ratio", heading="samples/s", format=Format.CHANGE, better="more"),
    Column(key="micro_batch", heading="at micro-batch", format=Format.COUNT),
    Column(key="pairs", heading="pairs", format=Format.COUNT),
)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each value of each axis, except the values of the baseline."""
    size = useful_micro_batch(results.configurations, results.baseline)
    effects = technique_effects(results.configurations, results.baseline, size)
    if not effects:
        return None
    pairs = "Medians over pairs of configurations that differ in nothing else"
    if size is not None:
        pairs = (
            f"{pairs}, at micro-batch {size}, where the baseline's techniques are about as fast as "
            "they get, or the largest below it with a pair"
        )
    return Content(
        title="Effect of each technique",
        text=(f"{pairs}; accumulation is compared at equal effective batch.",),
        tables=(Table(columns=COLUMNS, rows=tuple(map(_row, effects))),),
    )


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
