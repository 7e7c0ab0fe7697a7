"""The sections of every report, in their order. A new section is a new file and a row here."""

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
    RunSection(name="headline", make=headline.make, terminal_rows=1, on_page=False),
    RunSection(name="search_summary", make=search_summary.make, terminal_rows=1),
    EnvironmentSection(
        name="pareto_front", make=pareto_front.make, terminal_rows=20, on_page=False
    ),
    EnvironmentSection(name="budgets", make=budgets.make, terminal_rows=24),
    EnvironmentSection(name="longest_context", make=longest_context.make, terminal_rows=12),
    EnvironmentSection(name="hf_guide", make=hf_guide.make),
    EnvironmentSection(name="anatomy", make=anatomy.make, on_page=False),
    EnvironmentSection(name="effects", make=effects.make),
    EnvironmentSection(name="cumulative", make=cumulative.make),
    EnvironmentSection(name="environment", make=environment.make),
    RunSection(name="failures", make=failures.make, terminal_rows=5),
    RunSection(name="warnings", make=warnings.make, terminal_rows=12),
    RunSection(name="one_time_costs", make=one_time_costs.make),
)
