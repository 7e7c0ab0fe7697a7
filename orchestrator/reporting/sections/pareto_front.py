"""The configurations of the ranked training recipe that no other beats in both memory and speed."""

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.labels import recipe_label
from orchestrator.reporting.configurations import (
    MEMORY,
    OTHER_RECIPE,
    SPEEDS,
    WHICH,
    error_meaning,
    mark_notes,
    memory_meaning,
    row_of,
)
from orchestrator.reporting.content import Content, Table
from orchestrator.units import count


def make(dataset: Dataset, results: EnvironmentResults) -> Content:
    """The front, sorted by memory."""
    rows = [row_of(dataset, results, configuration) for configuration in results.front]
    measured = count(len(results.configurations), "configuration")
    sentences = [
        f"{len(rows)} of {measured}: no other is faster in the same memory or less.",
        scope(results),
        f"Memory: {memory_meaning(results)}.",
        error_meaning(results),
    ]
    columns = (MEMORY, *SPEEDS, *WHICH)
    return Content(
        title="Pareto front",
        text=tuple(filter(None, sentences)),
        tables=(Table(columns=columns, rows=tuple(rows), is_curve=True),),
        notes=mark_notes(results, results.front),
    )


def scope(results: EnvironmentResults) -> str:
    """The training recipe whose configurations are ranked; empty if there is only one."""
    others = len(results.fronts) - 1
    sentence = "Ranked: same training recipe as the baseline, any batch size."
    if not results.is_baseline_recipe:
        ranked = recipe_label(results.recipe)
        sentence = f"Ranked: {ranked}, because no trial of the baseline's recipe ended ok."
    if others:
        recipes = count(others, "other training recipe")
        return f"{sentence} {recipes} ({OTHER_RECIPE}) listed separately."
    return "" if results.is_baseline_recipe else sentence
