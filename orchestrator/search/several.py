"""Several searches as one: in turn, or one for each GPU model of a cluster."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import Purpose, TrialSpec
from orchestrator.search.base import Search


class SeveralSearches(Search):
    """Independent searches as one, which has skipped, has pending and considers what any has."""

    def __init__(self, searches: Iterable[Search]) -> None:
        self._all = tuple(searches)

    @property
    def exhausted(self) -> bool:
        return all(search.exhausted for search in self._all)

    def skipped(self) -> Iterable[TrialRecord]:
        return [record for search in self._all for record in search.skipped()]

    def pending(self) -> Iterable[TrialSpec]:
        return [trial for search in self._all for trial in search.pending()]

    def considers(self, spec: TrialSpec) -> bool:
        return any(search.considers(spec) for search in self._all)


class RoundRobin(SeveralSearches):
    """Asks the searches in turn: the one that gave a trial last is asked last. Each search gets
    every record, and ignores records of trials that are not its own."""

    def __init__(self, searches: Iterable[Search]) -> None:
        super().__init__(searches)
        self._queue = deque(self._all)
        """The search to ask next is first."""

    def ask(self) -> TrialSpec | None:
        for search in self._queue:
            trial = search.ask()
            if trial is not None:
                self._queue.remove(search)
                self._queue.append(search)
                return trial
        return None

    def tell(self, record: TrialRecord) -> None:
        for search in self._all:
            search.tell(record)


class PerGpuModel(SeveralSearches):
    """Asks the search of the GPU model with the most idle slots. No model waits for another.

    ``searches`` maps a GPU model to the search over its own trials (``for_gpu_model``). ``slots``
    maps it to the number of trials that run at once. Each search gets only the records of its own
    model.
    """

    def __init__(self, searches: Mapping[str, Search], slots: Mapping[str, int]) -> None:
        super().__init__(searches.values())
        self._searches = searches
        self._slots = slots
        self._outstanding: dict[str, set[str]] = {model: set() for model in searches}
        """GPU model -> ids of its outstanding trials."""
        self._tie_break_model: str | None = None
        """The model of a tie-break that the last trial was of: one slot runs all its rounds."""

    def ask(self) -> TrialSpec | None:
        """The next trial of the first model that has room and a trial."""
        for model in self._models_to_ask():
            trial = self._searches[model].ask()
            if trial is not None:
                self._outstanding[model].add(trial.trial_id)
                is_tie_break = trial.purpose is Purpose.TIE_BREAK
                self._tie_break_model = model if is_tie_break else None
                return trial
        return None

    def _models_to_ask(self) -> list[str]:
        """A tie-break's model first, then the models with room, most idle slots first."""
        # There is room for one trial more than slots, so no slot waits for its next trial.
        most_idle_first = sorted(self._slots, key=self._trials_beyond_slots)
        with_room = [model for model in most_idle_first if self._trials_beyond_slots(model) <= 0]
        of_tie_break = [] if self._tie_break_model is None else [self._tie_break_model]
        return list(dict.fromkeys([*of_tie_break, *with_room]))

    def _trials_beyond_slots(self, model: str) -> int:
        return len(self._outstanding[model]) - self._slots[model]

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        outstanding = self._outstanding[spec.gpu_model]
        outstanding.discard(spec.trial_id)
        chosen = self._searches[spec.gpu_model].reconsider(spec)
        if chosen is not None:
            outstanding.add(chosen.trial_id)
        return chosen

    def allowed_seconds(self, spec: TrialSpec) -> float:
        return self._searches[spec.gpu_model].allowed_seconds(spec)

    def tell(self, record: TrialRecord) -> None:
        model = record.spec.gpu_model
        if model in self._searches:
            self._outstanding[model].discard(record.trial_id)
            self._searches[model].tell(record)

    def summary(self) -> Mapping[str, Any]:
        """The counts of all models added up, and the summary of each model if it has results."""
        summaries = {model: search.summary() for model, search in self._searches.items()}
        # A kind of search that never skips trials has an empty summary.
        counted = [summary for summary in summaries.values() if summary]
        if not counted:
            return {}
        skipped: Counter[str] = Counter()
        for summary in counted:
            skipped.update(summary["skipped"])
        total = {
            "kind": counted[0]["kind"],
            "planned": sum(summary["planned"] for summary in counted),
            "measured": sum(summary["measured"] for summary in counted),
            "skipped": dict(skipped),
        }
        if any("results" in summary for summary in counted):
            total["by_gpu_model"] = summaries
        return total


def per_gpu_model(searches: Mapping[str, Search], slots: Mapping[str, int]) -> Search:
    """All searches as one; a single search as it is."""
    (first, *others) = searches.values()
    return PerGpuModel(searches, slots) if others else first


def for_gpu_model(trials: Iterable[TrialSpec], gpu_model: str) -> tuple[TrialSpec, ...]:
    """The same trials for one GPU model alone. With an empty name any model may run them."""
    return tuple(replace(own, gpu_model=gpu_model) if gpu_model else own for own in trials)
