"""The anatomies that a report shows: of a configuration's own trial, or of a follow-up."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.anatomy_record import Anatomy
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.profiles import at_speed_of, profile_sources


def anatomies_of(dataset: Dataset, configurations: Iterable[Configuration]) -> dict[str, Anatomy]:
    """First trial of each profiled configuration -> its anatomy, at its own speed."""
    if not dataset.anatomies:
        return {}
    rows = {configuration.trial_ids: configuration.row for configuration in configurations}
    sources = profile_sources(rows, dataset.follow_ups, dataset.anatomies)
    anatomies = {}
    for trial_ids, row in rows.items():
        source = sources.get(trial_ids[0])
        if source is not None:
            anatomies[trial_ids[0]] = at_speed_of(dataset.anatomies[source], row)
    return anatomies


def asked_first(results: EnvironmentResults) -> list[Configuration]:
    """All configurations, in the order of a reader's interest: front, picks, then the others."""
    ordered = (*results.front, *results.picks, *results.configurations)
    return list({configuration.trial_ids: configuration for configuration in ordered}.values())
