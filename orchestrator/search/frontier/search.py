"""The frontier search: measures what could be on the memory/speed frontier, and says why it left out the rest."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.frontier.acquisition import exactly, most_telling, seconds_of
from orchestrator.search.frontier.audit import Audit, account_of
from orchestrator.search.frontier.configurations import (
    Configuration,
    Measured,
    configurations,
    measured,
)
from orchestrator.search.frontier.initial_design import design
from orchestrator.search.frontier.pruning import Evidence, Verdict
from orchestrator.search.frontier.similarity import kin
from orchestrator.search.frontier.surrogate import Prediction

LEAST_AUDITS = 2


class Frontier(Search):
    """Maps the frontier of every kind of training to within ``tolerance`` of memory and speed.

    A point is left out when it ran out of memory at a smaller micro-batch, is predicted not to fit, or even its best
    case is no better, by more than the tolerance, than a measured point of its kind of training. What is left out is
    weighed again after every trial. Of it a random share (``audit``) is measured after all, what takes twice as long
    half as likely: at least two, more only while they take no larger a share of the search's slot time.
    ``predicted`` has trials' bytes as foretold without measuring; it may grow while the search runs.
    """

    def __init__(
        self,
        trials: Iterable[TrialSpec],
        *,
        tolerance: float = 0.02,
        audit: float = 0.03,
        seed: int = 0,
        predicted: Mapping[str, float] | None = None,
    ) -> None:
        self._tolerance, self._share = tolerance, audit
        self._planned = configurations(trials)
        self._configuration = {trial_id: one for one in self._planned for trial_id in one.trial_ids}
        self._taken: set[str] = set()
        self._out: set[str] = set()
        self._records: dict[Configuration, list[TrialRecord]] = {}
        self._expected = predicted if predicted is not None else {}
        self._evidence = Evidence(self._planned, self._expected, tolerance)
        self._predicted: dict[Configuration, Prediction] = {}
        self._verdicts: dict[Configuration, Verdict] = {}
        self._shortest_seconds = math.inf
        self._kin = kin(self._planned)
        self._design, self._ends = design(self._planned, self._kin)
        self._seconds = self._seconds_of_audits = 0.0
        draw = random.Random(seed)
        self._lots = {one: math.log(1 - draw.random()) for one in self._planned}
        self._audited: dict[Configuration, tuple[Verdict, Prediction | None]] = {}
        self._audits: list[Audit] = []
        self._choice: Configuration | None = None
        self._is_current = False

    def ask(self) -> TrialSpec | None:
        chosen = self._next()
        if chosen is None:
            return None
        if (verdict := self._verdicts.pop(chosen, None)) is not None:
            self._audited[chosen] = (verdict, self._predicted.get(chosen))
        trial_id, spec = next(self._open(chosen))
        self._taken.add(trial_id)
        self._out.add(trial_id)
        self._is_current = False
        return spec

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        if self._configuration[spec.trial_id] in self._audited:
            return spec
        self._taken.discard(spec.trial_id)
        self._out.discard(spec.trial_id)
        self._is_current = False
        return self.ask()

    def tell(self, record: TrialRecord) -> None:
        trial_id = record.trial_id
        configuration = self._configuration.get(trial_id)
        if configuration is None or (trial_id in self._taken and trial_id not in self._out):
            return
        self._taken.add(trial_id)
        self._out.discard(trial_id)
        self._verdicts.pop(configuration, None)
        self._is_current = False
        self._records.setdefault(configuration, []).append(record)
        self._seconds += record.slot_seconds
        self._seconds_of_audits += record.slot_seconds if configuration in self._audited else 0.0
        self._evidence.ran(configuration, record)
        if record.outcome is Outcome.OK:
            self._shortest_seconds = min(self._shortest_seconds, max(record.slot_seconds, 1.0))
        self._learn(configuration)

    @property
    def exhausted(self) -> bool:
        return not self._out and self._next() is None

    def skipped(self) -> Iterable[TrialRecord]:
        self._next()
        return [
            TrialRecord(
                spec=spec, outcome=Outcome.SKIPPED, rule=verdict.rule, reason=verdict.reason
            )
            for configuration, verdict in self._verdicts.items()
            for _, spec in self._open(configuration)
        ]

    def unasked(self) -> Iterable[TrialSpec]:
        self._next()
        undecided = (one for one in self._planned if one not in self._verdicts)
        return [spec for configuration in undecided for _, spec in self._open(configuration)]

    @property
    def audit(self) -> tuple[Audit, ...]:
        """What was drawn from the skipped and measured so far, and how far off its predictions were."""
        return tuple(self._audits)

    @property
    def account(self) -> Mapping[str, Any]:
        return {
            "kind": "frontier",
            "planned": len(self._configuration),
            "measured": sum(map(len, self._records.values())),
            "skipped": dict(Counter(record.rule for record in self.skipped()).most_common()),
            "audit": account_of(self._audits, self._tolerance),
        }

    def _learn(self, configuration: Configuration) -> None:
        before = self._evidence.found.pop(configuration, None)
        found, contradicts = measured(self._records[configuration]), False
        if found is not None:
            if before is None and configuration in self._audited:
                contradicts = self._evidence.contradicts(
                    self._audited[configuration][0], configuration, found
                )
            self._evidence.put(configuration, found)
        if configuration in self._audited and len(self._records[configuration]) == 1:
            self._audits.append(self._audit_of(configuration, found, contradicts))

    def _audit_of(
        self, configuration: Configuration, found: Measured | None, contradicts: bool
    ) -> Audit:
        verdict, predicted = self._audited[configuration]
        record = self._records[configuration][0]
        known = found is not None and predicted is not None
        return Audit(
            trial_id=record.trial_id,
            rule=verdict.rule,
            outcome=record.outcome,
            memory_error=predicted.memory / found.memory_bytes - 1
            if known and predicted and found
            else None,
            speed_error=predicted.speed / found.samples_per_second - 1
            if known and predicted and found
            else None,
            contradicts=contradicts,
        )

    def _next(self) -> Configuration | None:
        """What to ask for now, after every verdict that can be given; pure but for what it remembers."""
        if not self._is_current:
            self._choice = self._choose()
            self._is_current = True
        return self._choice

    def _choose(self) -> Configuration | None:
        alive: dict[Configuration, Prediction | None] = {}
        self._predicted = self._evidence.predict()
        self._verdicts = {}
        for configuration in self._planned:
            if next(self._open(configuration), None) is None:
                continue
            predicted = self._predicted.get(configuration)
            is_begun = any(trial_id in self._taken for trial_id in configuration.trial_ids)
            if (
                verdict := self._evidence.against(configuration, None if is_begun else predicted)
            ) is not None:
                self._verdicts[configuration] = verdict
            else:
                alive[configuration] = predicted
        repeats = (
            one for one in alive if any(trial_id in self._taken for trial_id in one.trial_ids)
        )
        design = itertools.chain(self._design, () if self._expected else self._ends)
        first = next(repeats, None) or next((one for one in design if one in alive), None)
        if first is not None or not alive:
            return first or self._next_audit()
        unknown = next((one for one, predicted in alive.items() if predicted is None), None)
        return unknown or self._most_telling({one: known for one, known in alive.items() if known})

    def _most_telling(self, alive: dict[Configuration, Prediction]) -> Configuration | None:
        alive = dict(self._leading(alive))
        measured = ((one, exactly(found)) for one, found in self._evidence.found.items())
        out = {self._configuration[trial_id] for trial_id in self._out}
        running = [(one, self._predicted[one]) for one in out if one in self._predicted]
        return most_telling(
            alive,
            measured,
            running,
            self._evidence.leads,
            tolerance=self._tolerance,
            shortest_seconds=self._shortest_seconds,
        )

    def _leading(
        self, alive: dict[Configuration, Prediction]
    ) -> Iterator[tuple[Configuration, Prediction]]:
        """Of kin only the plan's first, for it tells of the others, and those that are likely faster than it can be."""
        leaders: dict[int, Prediction] = {}
        for one, predicted in alive.items():
            leader = leaders.setdefault(self._kin[one], predicted)
            if leader is predicted or predicted.speed > leader.speed_high:
                yield one, predicted

    def _open(self, configuration: Configuration) -> Iterator[tuple[str, TrialSpec]]:
        both = zip(configuration.trial_ids, configuration.trials, strict=True)
        return (pair for pair in both if pair[0] not in self._taken)

    def _next_audit(self) -> Configuration | None:
        if not self._verdicts or any(
            self._configuration[out] not in self._audited for out in self._out
        ):
            return None
        wanted = (
            max(LEAST_AUDITS, math.ceil(self._share * (len(self._verdicts) + len(self._audited))))
            if self._share
            else 0
        )
        seconds = {one: self._seconds_of(one) for one in self._verdicts}
        drawn = max(seconds, key=lambda one: self._lots[one] * seconds[one])
        dear = self._seconds_of_audits + seconds[drawn] > self._share * self._seconds
        return (
            None if len(self._audited) >= (min(wanted, LEAST_AUDITS) if dear else wanted) else drawn
        )

    def _seconds_of(self, configuration: Configuration) -> float:
        predicted = self._predicted.get(configuration)
        return (
            seconds_of(configuration, predicted, self._shortest_seconds)
            if predicted
            else self._shortest_seconds
        )
