"""One search per GPU model of a cluster: every configuration is measured once per model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import Purpose, TrialSpec
from orchestrator.search.base import Search


class PerGpuModel(Search):
    """Asks the search of the GPU model with the most idle slots; no model waits for another.

    ``searches`` maps a GPU model to the search over its own trials (``for_gpu_model``), ``slots``
    to the number of trials it runs at once. Each search is told only the records of its own model.
    """

    def __init__(self, searches: Mapping[str, Search], slots: Mapping[str, int]) -> None:
        self._searches = searches
        self._slots = slots
        self._out: dict[str, set[str]] = {model: set() for model in searches}
        """GPU model -> ids of its trials that are out."""
        self._tie_break_model: str | None = None
        """The model whose tie-break was asked for last: one slot runs all its rounds, so they are
        asked for in a row."""

    def ask(self) -> TrialSpec | None:
        for model in self._models_to_ask():
            trial = self._searches[model].ask()
            if trial is not None:
                self._out[model].add(trial.trial_id)
                is_tie_break = trial.purpose is Purpose.TIE_BREAK
                self._tie_break_model = model if is_tie_break else None
                return trial
        return None

    def _models_to_ask(self) -> list[str]:
        """A tie-break's model first, then the models with room, most idle slots first.

        A model has room for one trial more than it has slots, so that no slot waits for its next
        trial.
        """
        models = [] if self._tie_break_model is None else [self._tie_break_model]
        for model in sorted(self._slots, key=self._trials_beyond_slots):
            if self._trials_beyond_slots(model) <= 0 and model not in models:
                models.append(model)
        return models

    def _trials_beyond_slots(self, model: str) -> int:
        return len(self._out[model]) - self._slots[model]

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        out = self._out[spec.gpu_model]
        out.discard(spec.trial_id)
        chosen = self._searches[spec.gpu_model].reconsider(spec)
        if chosen is not None:
            out.add(chosen.trial_id)
        return chosen

    def tell(self, record: TrialRecord) -> None:
        model = record.spec.gpu_model
        if model in self._searches:
            self._out[model].discard(record.trial_id)
            self._searches[model].tell(record)

    @property
    def exhausted(self) -> bool:
        return all(search.exhausted for search in self._searches.values())

    def skipped(self) -> Iterable[TrialRecord]:
        return [record for search in self._searches.values() for record in search.skipped()]

    def pending(self) -> Iterable[TrialSpec]:
        return [trial for search in self._searches.values() for trial in search.pending()]

    def summary(self) -> Mapping[str, Any]:
        """The counts of all models added up.

        An audit is about one model, so it is left out if there are several.
        """
        summaries = [search.summary() for search in self._searches.values()]
        return _sum_of([summary for summary in summaries if summary])


def _sum_of(summaries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if not summaries:
        return {}
    if len(summaries) == 1:
        return summaries[0]
    skipped: dict[str, int] = {}
    for summary in summaries:
        for rule, trials in summary["skipped"].items():
            skipped[rule] = skipped.get(rule, 0) + trials
    return {
        "kind": summaries[0]["kind"],
        "planned": sum(summary["planned"] for summary in summaries),
        "measured": sum(summary["measured"] for summary in summaries),
        "skipped": skipped,
    }


def per_gpu_model(searches: Mapping[str, Search], slots: Mapping[str, int]) -> Search:
    """All searches as one; a single search as it is."""
    if len(searches) == 1:
        return next(iter(searches.values()))
    return PerGpuModel(searches, slots)


def for_gpu_model(trials: Iterable[TrialSpec], gpu_model: str) -> tuple[TrialSpec, ...]:
    """The same trials, which only this GPU model may run; any model if the name is empty."""
    return tuple(replace(trial, gpu_model=gpu_model) for trial in trials)
