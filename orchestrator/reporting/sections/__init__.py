"""The sections of every report, in their order. A new section is a new file and a name here."""

from __future__ import annotations

from orchestrator.reporting.content import EnvironmentSection, RunSection
from orchestrator.reporting.sections import (
    anatomy,
    budgets,
    cumulative,
    effects,
    environment,
    failures,
    headline,
    hf_guide,
    longest_context,
    one_time_costs,
    pareto_front,
    search_summary,
    warnings,
)

SECTIONS: tuple[RunSection | EnvironmentSection, ...] = (
    headline.SECTION,
    search_summary.SECTION,
    pareto_front.SECTION,
    budgets.SECTION,
    longest_context.SECTION,
    hf_guide.SECTION,
    anatomy.SECTION,
    effects.SECTION,
    cumulative.SECTION,
    environment.SECTION,
    failures.SECTION,
    warnings.SECTION,
    one_time_costs.SECTION,
)
