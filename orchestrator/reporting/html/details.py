"""What the page shows of picked configurations: where their memory and time go, and why two differ.

All of it as plain values for the page's script: bytes, seconds, and timelines in MiB.
"""

import itertools
from collections.abc import Mapping
from typing import Any

from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD
from jobs.anatomy_record import Anatomy
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.explanation.two_trials import NotExplainableError, explain
from orchestrator.analysis.gain_over_default import has_default_techniques
from orchestrator.reporting.sections.anatomy import anatomies_of, asked_first
from orchestrator.reporting.verbs.explanation import render
from orchestrator.units import MIB, number

MAX_ANATOMIES = 200
"""A page holds at most this many anatomies of about 10 kB. ``anatomy.parquet`` holds all."""
MAX_EXPLAINED = 10
"""Configurations of an environment whose pairs are explained: 45 pairs of about 1.5 kB each."""
_PARTS: tuple[str, ...] = ("memory", "operations", "modules", "step")


def anatomies(dataset: Dataset, index_of: Mapping[str, int]) -> dict[str, Any]:
    """Index of a configuration -> its anatomy: front and picks first, then the others."""
    wanted = [own for results in dataset.environments for own in asked_first(results)]
    shown: dict[str, Any] = {}
    for trial_id, anatomy in anatomies_of(dataset, wanted).items():
        if trial_id in index_of and len(shown) < MAX_ANATOMIES:
            shown[str(index_of[trial_id])] = plain_anatomy(anatomy)
    return shown


def plain_anatomy(anatomy: Anatomy) -> dict[str, Any]:
    """Each part as (name, value) pairs, two ratios as text, the timeline, and the rules of thumb:
    name, measured value, expected value, unit, and whether it held."""
    parts: dict[str, Any] = {}
    for part in _PARTS:
        # Six digits are more than a profiler's precision.
        values = anatomy.values(part).items()
        parts[part] = [(name, float(f"{value:.6g}")) for name, value in values if value > 0]
    timeline = anatomy.timeline
    ratio = anatomy.values("phases").get(BACKWARD_TO_FORWARD)
    mfu = anatomy.values("efficiency").get("MFU")
    return {
        **parts,
        "ratios": [
            "" if ratio is None else number(ratio),
            "" if mfu is None else f"{100 * mfu:.1f} %",
        ],
        "rules": [
            (entry.name, entry.value, entry.expected, entry.unit, int(entry.held))
            for entry in anatomy.entries
            if entry.held is not None
        ],
        # A tenth of a MiB and five digits of a second are below a pixel of the drawn timeline.
        "timeline": {
            "seconds": [float(f"{seconds:.5g}") for seconds in timeline.seconds],
            "mib": {
                name: [round(nbytes / MIB, 1) for nbytes in samples]
                for name, samples in timeline.held.items()
            },
            "phases": list(map(list, timeline.phases)),
        },
    }


def explained_pairs(dataset: Dataset, index_of: Mapping[str, int]) -> dict[str, str]:
    """``"3,7"`` -> the explanation of row 7 against row 3, as the verb ``explain`` prints it.
    ``index_of`` maps a trial to its row of the page's data. The smaller index is always A."""
    explanations = {}
    for results in dataset.environments:
        defaults = [own for own in results.configurations if has_default_techniques(results, own)]
        front = results.front
        ordered = [*results.picks, *front[:1], *front[-1:], *defaults[:1], *front]
        often_compared = list(dict.fromkeys(own.trial_ids[0] for own in ordered))[:MAX_EXPLAINED]
        indices = {index_of[own]: own for own in often_compared if own in index_of}
        for first, second in itertools.combinations(sorted(indices), 2):
            try:
                explanation = explain(dataset, indices[first], indices[second])
            except (NotExplainableError, LookupError):
                continue
            explanations[f"{first},{second}"] = render(explanation)
    return explanations
