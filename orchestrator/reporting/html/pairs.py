"""Why one configuration is faster or smaller than another, for the pairs that readers ask for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.explanation import NotExplainableError, explain
from orchestrator.analysis.gain import has_default_techniques
from orchestrator.reporting.explanation import render

MAX_EXPLAINED = 10
"""Configurations of an environment whose pairs are explained: 45 pairs of about 1.5 kB each."""


def explained_pairs(dataset: Dataset, index_of: Mapping[str, int]) -> dict[str, str]:
    """``"3,7"`` -> the explanation of row 7 against row 3, as the verb ``explain`` prints it.

    ``index_of`` maps a trial to its row of the page's data. The smaller index is always A.
    """
    explanations = {}
    for results in dataset.environments:
        indices = {}
        for configuration in _asked_first(results):
            trial_id = configuration.trial_ids[0]
            if trial_id in index_of:
                indices[index_of[trial_id]] = trial_id
        # Every unordered pair once, the smaller row first.
        for first, second in itertools.combinations(sorted(indices), 2):
            try:
                explanation = explain(dataset, indices[first], indices[second])
            except (NotExplainableError, LookupError):
                continue
            explanations[f"{first},{second}"] = render(explanation)
    return explanations


def _asked_first(results: EnvironmentResults) -> list[Configuration]:
    """The picks, the ends of the front, the default, then the rest of the front."""
    ordered = [*results.picks, *results.front[:1], *results.front[-1:]]
    for configuration in results.configurations:
        if has_default_techniques(results, configuration):
            ordered.append(configuration)
            break
    ordered += results.front
    different = {configuration.trial_ids: configuration for configuration in ordered}
    return list(different.values())[:MAX_EXPLAINED]
