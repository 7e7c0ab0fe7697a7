"""One search per GPU model of a cluster: every configuration is measured once per model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import Purpose, TrialSpec
from orchestrator.search.base import Search


class PerGpuModel(Search):
    """Asks the search of the GPU model with the most idle slots. No model waits for another.

    ``searches`` maps a GPU model to the search over its own trials (``for_gpu_model``). ``slots``
    maps it to the number of trials that run at once. Each search gets only the records of its own
    model.
    """

    def __init__(self, searches: Mapping[str, Search], slots: Mapping[str, int]) -> None:
        self._searches = searches
        self._slots = slots
        self._outstanding: dict[str, set[str]] = {model: set() for model in searches}
        """GPU model -> ids of its outstanding trials: asked for, and without a record."""
        self._tie_break_model: str | None = None
        """The model of the last trial, if that was a round of a tie-break.

        One slot runs all rounds of a tie-break, so they are asked for in a row."""

    def ask(self) -> TrialSpec | None:
        """The next trial of the first model that has room and a trial."""
        # The first model in the order that has a trial.
        for model in self._models_to_ask():
            trial = self._searches[model].ask()
            if trial is None:
                continue
            self._outstanding[model].add(trial.trial_id)
            self._tie_break_model = None
            if trial.purpose is Purpose.TIE_BREAK:
                self._tie_break_model = model
            return trial
        return None

    def _models_to_ask(self) -> list[str]:
        """A tie-break's model first, then the models with room, most idle slots first.

        A model has room for one trial more than it has slots. So no slot waits for its next trial.
        """
        models = []
        if self._tie_break_model is not None:
            models.append(self._tie_break_model)
        for model in sorted(self._slots, key=self._trials_beyond_slots):
            if self._trials_beyond_slots(model) <= 0 and model not in models:
                models.append(model)
        return models

    def _trials_beyond_slots(self, model: str) -> int:
        return len(self._outstanding[model]) - self._slots[model]

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        """What the search of the trial's model runs instead of it."""
        outstanding = self._outstanding[spec.gpu_model]
        outstanding.discard(spec.trial_id)
        chosen = self._searches[spec.gpu_model].reconsider(spec)
        if chosen is not None:
            outstanding.add(chosen.trial_id)
        return chosen

    def allowed_seconds(self, spec: TrialSpec) -> float:
        """What the search of the trial's model allows."""
        return self._searches[spec.gpu_model].allowed_seconds(spec)

    def tell(self, record: TrialRecord) -> None:
        """Pass the record on to the search of its GPU model."""
        model = record.spec.gpu_model
        if model in self._searches:
            self._outstanding[model].discard(record.trial_id)
            self._searches[model].tell(record)

    @property
    def exhausted(self) -> bool:
        """Whether every model's search is exhausted."""
        return all(search.exhausted for search in self._searches.values())

    def skipped(self) -> Iterable[TrialRecord]:
        """What any model's search skipped."""
        records: list[TrialRecord] = []
        for search in self._searches.values():
            records += search.skipped()
        return records

    def pending(self) -> Iterable[TrialSpec]:
        """What any model's search has pending."""
        trials: list[TrialSpec] = []
        for search in self._searches.values():
            trials += search.pending()
        return trials

    def considers(self, spec: TrialSpec) -> bool:
        """Whether any model's search chooses from a space with the trial."""
        return any(search.considers(spec) for search in self._searches.values())

    def summary(self) -> Mapping[str, Any]:
        """The counts of all models added up.

        An audit is about one model, so it is left out if there are several.
        """
        summaries = {model: search.summary() for model, search in self._searches.items()}
        # A kind of search that never skips trials has an empty summary.
        total = _sum_of(list(filter(None, summaries.values())))
        # An answer is about one model, so each model keeps its own.
        if any("results" in summary for summary in summaries.values()):
            return {**total, "by_gpu_model": summaries}
        return total


def _sum_of(summaries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """One summary of several, as ``Search.summary`` describes it; empty for none."""
    if not summaries:
        return {}
    if len(summaries) == 1:
        return summaries[0]
    # Counts of several models add up, rule by rule.
    planned = 0
    measured = 0
    skipped: Counter[str] = Counter()
    for summary in summaries:
        planned += summary["planned"]
        measured += summary["measured"]
        skipped.update(summary["skipped"])
    return {
        "kind": summaries[0]["kind"],
        "planned": planned,
        "measured": measured,
        "skipped": dict(skipped),
    }


def per_gpu_model(searches: Mapping[str, Search], slots: Mapping[str, int]) -> Search:
    """All searches as one; a single search as it is."""
    if len(searches) == 1:
        return next(iter(searches.values()))
    return PerGpuModel(searches, slots)


def for_gpu_model(trials: Iterable[TrialSpec], gpu_model: str) -> tuple[TrialSpec, ...]:
    """The same trials for one GPU model alone. With an empty name any model may run them."""
    if not gpu_model:
        return tuple(trials)
    return tuple(replace(trial, gpu_model=gpu_model) for trial in trials)
