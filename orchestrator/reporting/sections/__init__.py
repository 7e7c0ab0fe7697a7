"""The sections of every report, in their order. A new section is a new file and a row here."""

from functools import partial

from orchestrator.reporting.content import ReportSection
from orchestrator.reporting.sections import (
    anatomy,
    budgets,
    effects,
    environment,
    failed_trials,
    gradients,
    headline,
    hf_guide,
    longest_context,
    one_time_costs,
    pareto_front,
    search_outcome,
    warnings,
    way,
)

_of_environments = partial(ReportSection, of_environments=True)

SECTIONS: tuple[ReportSection, ...] = (
    ReportSection(name="headline", make=headline.make, terminal_rows=1, on_page=False),
    ReportSection(name="search_summary", make=search_outcome.make, terminal_rows=1),
    _of_environments(name="pareto_front", make=pareto_front.make, terminal_rows=20, on_page=False),
    _of_environments(name="budgets", make=budgets.make, terminal_rows=24),
    _of_environments(name="way", make=way.make),
    ReportSection(name="search_results", make=search_outcome.results, terminal_rows=12),
    _of_environments(name="gradients", make=gradients.make, terminal_rows=12),
    _of_environments(name="longest_context", make=longest_context.make, terminal_rows=12),
    _of_environments(name="hf_guide", make=hf_guide.make),
    _of_environments(name="anatomy", make=anatomy.make, on_page=False),
    _of_environments(name="effects", make=effects.make),
    _of_environments(name="environment", make=environment.make),
    ReportSection(name="failures", make=failed_trials.make, terminal_rows=5),
    ReportSection(name="warnings", make=warnings.make, terminal_rows=12),
    ReportSection(name="one_time_costs", make=one_time_costs.make),
)
