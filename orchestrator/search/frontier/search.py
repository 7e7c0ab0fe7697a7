"""The frontier search: measures what could be on the Pareto front of memory and speed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import Outcome, TrialRecord, skipped
from jobs.spec import TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.best.plan_state import PlanState
from orchestrator.search.frontier.acquisition import (
    Choices,
    as_prediction,
    next_candidate,
    seconds_of,
)
from orchestrator.search.frontier.audit import Audit, Auditor
from orchestrator.search.frontier.initial_design import initial_design
from orchestrator.search.frontier.pruning import Pruning, PruningDecision
from orchestrator.search.frontier.similarity import similarity_groups
from orchestrator.search.frontier.surrogate import Prediction, Surrogate
from orchestrator.search.model.candidates import Candidate, candidates_of
from orchestrator.search.model.hyperparameters import Hyperparameters
from orchestrator.search.model.measurements import measurement_of

_MIN_TRIAL_SECONDS = 1.0
"""No trial is expected to take less slot time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Decisions:
    """What follows from everything known at a moment."""

    predictions: Mapping[Candidate, Prediction]
    """Of every candidate; empty before any measurement."""
    pruned: Mapping[Candidate, PruningDecision]
    next: Candidate | None
    """The candidate to ask for."""


class FrontierSearch(Search):
    """Bayesian optimization of the Pareto front of memory and speed of each training recipe.

    After the initial design, a surrogate predicts memory and speed of every candidate from those
    measured. Pruning leaves out candidates that do not fit, or that are no better than a measured
    one even at their best. Of the remaining candidates, the acquisition picks the next one. After
    every record all decisions are made anew. When no candidate is left, an audit measures
    ``audit_fraction`` of the pruned ones, drawn by ``seed``. ``tolerance`` is the share of memory
    and speed by which a candidate has to be better to be worth a trial.

    ``predicted_bytes`` maps trials to memory that was predicted without measuring; it may grow
    during the search.
    """

    def __init__(
        self,
        trials: Iterable[TrialSpec],
        *,
        tolerance: float = 0.02,
        audit_fraction: float = 0.03,
        seed: int = 0,
        predicted_bytes: Mapping[str, float] | None = None,
        hyperparameters: Hyperparameters | None = None,
    ) -> None:
        self._tolerance = tolerance
        if predicted_bytes is None:
            predicted_bytes = {}
        self._predicted_bytes = predicted_bytes
        self._candidates = candidates_of(trials)
        self._plan = PlanState(self._candidates)
        self._records: dict[Candidate, list[TrialRecord]] = {}
        self._shortest_seconds = math.inf
        """Slot time of the shortest trial so far."""
        # What learns, what prunes, what checks.
        surrogate = Surrogate(self._candidates, self._predicted_bytes, hyperparameters)
        self._pruning = Pruning(self._candidates, surrogate, tolerance)
        self._auditor = Auditor(self._candidates, audit_fraction, seed)
        self._groups = similarity_groups(self._candidates)
        self._design = initial_design(self._candidates, self._groups)
        self._decisions: _Decisions | None = None
        """None if something was recorded since they were made."""

    def ask(self) -> TrialSpec | None:
        """The next open trial of the chosen candidate."""
        # A pruned candidate is only ever asked for as an audit.
        decisions = self._current_decisions()
        candidate = decisions.next
        if candidate is None:
            return None
        decision = decisions.pruned.get(candidate)
        if decision is not None:
            self._auditor.begin(candidate, decision, decisions.predictions.get(candidate))
        trial = self._plan.open_trials(candidate)[0]
        self._plan.take(trial.trial_id)
        self._decisions = None
        return trial

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        """What the latest decisions run instead; a trial of the audit stays."""
        candidate = self._plan.candidate_of(spec.trial_id)
        if candidate is not None and self._auditor.is_audited(candidate):
            return spec
        self._plan.give_back(spec.trial_id)
        self._decisions = None
        return self.ask()

    def tell(self, record: TrialRecord) -> None:
        """Learn from a trial of the plan, the first time that it has a record."""
        candidate = self._plan.candidate_of(record.trial_id)
        if candidate is None or not self._plan.end(record.trial_id):
            return
        # News: all decisions are made again. The record goes to everything that learns from it.
        self._decisions = None
        self._records.setdefault(candidate, []).append(record)
        self._auditor.spend(candidate, record.slot_seconds)
        self._pruning.ended(candidate, record)
        if record.outcome is Outcome.OK:
            seconds = max(record.slot_seconds, _MIN_TRIAL_SECONDS)
            self._shortest_seconds = min(self._shortest_seconds, seconds)
        self._learn(candidate)

    @property
    def exhausted(self) -> bool:
        """Whether no candidate is left to measure or to audit, and no trial is outstanding."""
        return self._current_decisions().next is None and not self._plan.has_outstanding_trials

    def skipped(self) -> Iterable[TrialRecord]:
        """The open trials of pruned candidates, as the decisions are now."""
        records = []
        for candidate, decision in self._current_decisions().pruned.items():
            trials = self._plan.open_trials(candidate)
            records += [skipped(trial, decision.rule, decision.reason) for trial in trials]
        return records

    def pending(self) -> Iterable[TrialSpec]:
        """The open trials of the candidates that are not pruned."""
        pruned = self._current_decisions().pruned
        kept = [candidate for candidate in self._candidates if candidate not in pruned]
        return self._plan.open_trials_of(kept)

    def summary(self) -> Mapping[str, Any]:
        """Counts of trials and of pruning rules, and the errors that the audit showed."""
        rules = Counter(record.rule for record in self.skipped())
        return {
            "kind": "frontier",
            "planned": self._plan.trial_count,
            "measured": self._plan.ended_count,
            "skipped": dict(rules.most_common()),
            "audit": self._auditor.summary(self._tolerance),
        }

    @property
    def audits(self) -> tuple[Audit, ...]:
        """The results of the audit so far."""
        return tuple(self._auditor.audits)

    def _learn(self, candidate: Candidate) -> None:
        """Learn from a candidate's records, and check the decision that it was audited for."""
        records = self._records[candidate]
        measurement = measurement_of(records)
        is_audited = self._auditor.is_audited(candidate)
        is_first = measurement is not None and candidate not in self._pruning.measurements
        # A decision can be checked only before its candidate's own measurement counts.
        contradicts = False
        if measurement is not None and is_first and is_audited:
            decision = self._auditor.decision_on(candidate)
            contradicts = self._pruning.contradicts(decision, candidate, measurement)
        self._pruning.measured(candidate, measurement)
        if is_audited and len(records) == 1:
            self._auditor.add_result(candidate, records[0], measurement, contradicts)

    def _current_decisions(self) -> _Decisions:
        """The decisions, made anew if something was recorded since the last ones."""
        if self._decisions is None:
            self._decisions = self._decide()
        return self._decisions

    def _decide(self) -> _Decisions:
        predictions = self._pruning.predictions()
        pruned: dict[Candidate, PruningDecision] = {}
        kept: list[Candidate] = []
        # Divide the open candidates into those to leave out and those to choose from.
        for candidate in filter(self._plan.is_open, self._candidates):
            # Repeats of a candidate that has begun are measured, unless they cannot fit.
            prediction = None
            if not self._plan.is_begun(candidate):
                prediction = predictions.get(candidate)
            decision = self._pruning.decision(candidate, prediction)
            if decision is None:
                kept.append(candidate)
            else:
                pruned[candidate] = decision
        # The audit comes when nothing is left to measure.
        chosen = self._choose(kept, predictions) if kept else self._draw_audit(pruned, predictions)
        return _Decisions(predictions=predictions, pruned=pruned, next=chosen)

    def _choose(
        self, kept: Sequence[Candidate], predictions: Mapping[Candidate, Prediction]
    ) -> Candidate | None:
        """Of the kept candidates: a repeat, one of the initial design, or the acquisition's."""
        fixed = next(self._before_acquisition(kept, predictions), None)
        if fixed is not None:
            return fixed
        # The acquisition weighs open candidates against measured and running ones.
        measured = []
        for candidate, measurement in self._pruning.measurements.items():
            measured.append((candidate, as_prediction(measurement)))
        running = []
        for candidate in self._plan.outstanding_candidates():
            if candidate in predictions:
                running.append((candidate, predictions[candidate]))
        choices = Choices(
            open=dict(self._worth_measuring(kept, predictions)),
            measured=measured,
            running=running,
        )
        return next_candidate(
            choices,
            self._pruning.highest_speed_ratios,
            tolerance=self._tolerance,
            shortest_seconds=self._shortest_seconds,
        )

    def _before_acquisition(
        self, kept: Sequence[Candidate], predictions: Mapping[Candidate, Prediction]
    ) -> Iterator[Candidate]:
        """The kept candidates that are measured without asking the acquisition, in their order."""
        yield from filter(self._plan.is_begun, kept)
        remaining = set(kept)
        design = self._design.candidates
        if not self._predicted_bytes:
            design = (*design, *self._design.without_predicted_memory)
        yield from (candidate for candidate in design if candidate in remaining)
        # Without a single measurement there is no surrogate.
        yield from (candidate for candidate in kept if candidate not in predictions)

    def _worth_measuring(
        self, kept: Sequence[Candidate], predictions: Mapping[Candidate, Prediction]
    ) -> Iterator[tuple[Candidate, Prediction]]:
        """The first of similar candidates, and any that is likely faster than the first can be.

        A measurement of the first candidate will say enough about the others.
        """
        leaders: dict[int, Prediction] = {}
        for candidate in kept:
            prediction = predictions[candidate]
            leader = leaders.setdefault(self._groups[candidate], prediction)
            if leader is prediction or prediction.speed > leader.highest_speed:
                yield candidate, prediction

    def _draw_audit(
        self,
        pruned: Iterable[Candidate],
        predictions: Mapping[Candidate, Prediction],
    ) -> Candidate | None:
        """A pruned candidate to audit, once all other trials have ended."""
        # An audit waits for the trials of the search, which may still change what is pruned.
        if not all(map(self._auditor.is_audited, self._plan.outstanding_candidates())):
            return None
        seconds = {}
        for candidate in pruned:
            prediction = predictions.get(candidate)
            if prediction is None:
                seconds[candidate] = self._shortest_seconds
            else:
                seconds[candidate] = seconds_of(candidate, prediction, self._shortest_seconds)
        return self._auditor.draw(seconds)
