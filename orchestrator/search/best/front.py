"""The frontier search: the fastest configuration of each training recipe at every memory.

It is the search of the best configuration, asked for every memory at which the Pareto front may
have a point, and audited at its end.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jobs.record import TrialRecord
from jobs.spec import TrainingRecipe, TrialSpec
from orchestrator.analysis.pareto import pareto_front
from orchestrator.search.best import skip_reasons
from orchestrator.search.best.audit import Audit, Auditor, ExpectedTrial
from orchestrator.search.best.budget_queries import BudgetQuery
from orchestrator.search.best.gain import Posterior, fastest_of
from orchestrator.search.best.search import BestSearch
from orchestrator.search.model.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.measurements import Measurement
from orchestrator.units import memory


class FrontierSearch(BestSearch):
    """Measures what could be on the Pareto front of each training recipe: what is better in memory
    or speed by the share ``tolerance``. When no candidate is left, an audit measures
    ``audit_fraction`` of the others, drawn by ``seed``."""

    def __init__(
        self,
        trials: Iterable[TrialSpec],
        *,
        tolerance: float = 0.02,
        audit_fraction: float = 0.03,
        seed: int = 0,
        predicted_bytes: Mapping[str, float] | None = None,
        priors: TechniquePriors | None = None,
    ) -> None:
        super().__init__(trials, regret=tolerance, predicted_bytes=predicted_bytes, priors=priors)
        self._tolerance = tolerance
        self._masks = _masks_of_recipes(self._candidates)
        self._auditor = Auditor(len(self._candidates), audit_fraction, seed)
        self._posterior: Posterior | None = None
        """What the current decisions follow from."""

    def ask(self) -> TrialSpec | None:
        """The next trial of the search, or at its end one of the audit."""
        trial = super().ask()
        if trial is not None or (drawn := self._drawn()) is None:
            return trial
        self._auditor.expected[drawn] = self._expected(drawn)
        return self._take(drawn)

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        """What the latest decisions run instead; a trial of the audit stays."""
        if self._plan.candidate_of.get(spec.trial_id) in self._auditor.expected:
            return spec
        return super().reconsider(spec)

    @property
    def exhausted(self) -> bool:
        return super().exhausted and self._drawn() is None

    def summary(self) -> Mapping[str, Any]:
        """Counts of trials and of the rules that skipped some, and the errors of the audit."""
        counts = super().summary()
        return {
            "kind": "frontier",
            **{name: counts[name] for name in ("planned", "measured", "skipped")},
            "audit": self._auditor.summary(self._tolerance),
        }

    @property
    def audits(self) -> tuple[Audit, ...]:
        return tuple(self._auditor.audits.values())

    def _note(self, index: int, record: TrialRecord) -> None:
        """Learn from a record, and compare an audited trial with what was expected of it."""
        super()._note(index, record)
        self._auditor.spend(index, record.slot_seconds)
        if self._auditor.is_awaited(index):
            measurement = self._state.measured.get(index)
            contradicts = measurement is not None and self._contradicts(index, measurement)
            self._auditor.add_result(index, record.trial_id, measurement, contradicts)

    def _queries(self) -> list[BudgetQuery]:
        """A query for each memory at which a recipe's front may have a point."""
        posterior = self._posterior = self._state.posterior()
        if posterior is None:
            return super()._queries()
        may_run = ~self._state.cannot_run
        device_bytes = self._state.device_bytes or math.inf
        queries = []
        for recipe, mask in self._masks.items():
            memories = _memories(posterior, np.flatnonzero(mask & may_run), self._tolerance)
            # A recipe of which nothing runs has a query, too, so that its trials get their reason.
            for memory_bytes in memories or [device_bytes]:
                budget = min(memory_bytes, device_bytes)
                queries.append(BudgetQuery(budget, budget, recipe, mask))
        return queries

    def _reason(self, index: int, rule: str) -> str:
        """The sentence for a rule; it names the trial that a candidate cannot beat."""
        posterior = self._posterior
        if rule != skip_reasons.CANNOT_GAIN or posterior is None:
            return super()._reason(index, rule)
        expected = self._expected(index)
        rival = fastest_of(posterior, self._rivals(index), expected.most_bytes)
        if rival is None:
            return super()._reason(index, rule)
        measured = self._state.measured[rival]
        return (
            f"Trial {measured.trial_id} reaches {measured.samples_per_second:.4g} samples/s in "
            f"{memory(measured.memory_bytes)}; this one is expected to reach "
            f"{expected.samples_per_second:.4g} samples/s in {memory(expected.memory_bytes)}."
        )

    def _drawn(self) -> int | None:
        """A skipped candidate to audit, once all trials of the search have ended."""
        left_out = self._current_decisions().skipped
        posterior = self._posterior
        running = set(self._plan.outstanding_candidates)
        if posterior is None or not self._auditor.expected.keys() >= running:
            return None
        seconds = self._state.seconds(posterior)
        return self._auditor.draw({index: float(seconds[index]) for index in left_out})

    def _expected(self, index: int) -> ExpectedTrial:
        rule = self._current_decisions().skipped[index]
        posterior = self._posterior
        assert posterior is not None
        log_memory, deviation = posterior.log_memory[index], posterior.memory_deviation[index]
        return ExpectedTrial(
            rule=rule,
            memory_bytes=math.exp(log_memory),
            most_bytes=math.exp(log_memory + deviation) * (1 + self._tolerance),
            samples_per_second=math.exp(posterior.log_speed[index]),
        )

    def _contradicts(self, index: int, measurement: Measurement) -> bool:
        """Whether an audited candidate should not have been skipped: it ran although it was not
        expected to, or beats, by more than the tolerance, all others that need about no more
        memory."""
        # What is expected not to fit needs more memory than the whole front, but it may run.
        may_run = (skip_reasons.CANNOT_GAIN, skip_reasons.DOES_NOT_FIT)
        if self._auditor.expected[index].rule not in may_run:
            return True
        limit = (1 + self._tolerance) * measurement.memory_bytes
        rivals = [self._state.measured[rival] for rival in self._rivals(index)]
        speeds = [own.samples_per_second for own in rivals if own.memory_bytes <= limit]
        return max(speeds, default=0.0) < (1 - self._tolerance) * measurement.samples_per_second

    def _rivals(self, index: int) -> list[int]:
        """The other measured candidates of the same training recipe."""
        recipes = [candidate.training_recipe for candidate in self._candidates]
        others = (own for own in self._state.measured if own != index)
        return [own for own in others if recipes[own] == recipes[index]]


def _masks_of_recipes(candidates: Sequence[Candidate]) -> dict[str, Mask]:
    """Every training recipe -> its candidates, shape (candidates,)."""
    recipes = Numbering[TrainingRecipe]()
    numbers = recipes.of(candidate.training_recipe for candidate in candidates)
    return {str(number): numbers == number for number in recipes.values()}


def _memories(posterior: Posterior, candidates: Indices, tolerance: float) -> list[float]:
    """Bytes at which the front of some candidates may have a point, ascending: each point of the
    likely front, with a deviation added so that it probably fits. Below them, the points of the
    front as it would be if every candidate were better by a deviation."""
    if not len(candidates):
        return []
    log_memory, deviation = posterior.log_memory, posterior.memory_deviation
    likely = _front(candidates, log_memory, posterior.log_speed)
    lowest = log_memory[likely].min() - math.log1p(tolerance)
    best_speed = posterior.log_speed + np.sqrt(posterior.times.variance)
    possible = _front(candidates, log_memory - deviation, best_speed)
    smaller = [index for index in possible if log_memory[index] - deviation[index] < lowest]
    log_bytes = [*(log_memory + deviation)[likely], *(log_memory - deviation)[smaller]]
    # Whole bytes, rounded up, so that a measured candidate fits in its own memory.
    return sorted({math.ceil(math.exp(own)) for own in log_bytes})


def _front(candidates: Indices, log_memory: Array, log_speed: Array) -> list[int]:
    """The candidates on the Pareto front of these figures."""
    little_memory, speed = (-log_memory).tolist(), log_speed.tolist()
    objectives = (little_memory.__getitem__, speed.__getitem__)
    return list(pareto_front(candidates.tolist(), objectives))
