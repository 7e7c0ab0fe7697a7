"""A report: a run's data set with its sections filled in, for every renderer."""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from jobs.record import Outcome
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.reporting.content import Content, ReportSection
from orchestrator.reporting.sections import SECTIONS
from orchestrator.storage.tables.rows import Row
from orchestrator.units import count, duration


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportPart:
    section: ReportSection
    environment: EnvironmentResults | None
    """None if it is about the whole run."""
    content: Content


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that the pages of a run show."""

    dataset: Dataset
    files: tuple[Path, ...] = ()
    """What was written."""
    unwritten: tuple[str, ...] = ()
    """A sentence for each file that could not be made."""
    sections: tuple[ReportSection, ...] = SECTIONS

    @cached_property
    def parts(self) -> tuple[ReportPart, ...]:
        """The sections with something to say; of environments, one environment after another."""
        parts: list[ReportPart] = []
        # Neighbours of one kind stay together, so that all sections of an environment follow its
        # heading before the next environment begins.
        for of_environments, sections in itertools.groupby(
            self.sections, key=attrgetter("of_environments")
        ):
            environments = self.dataset.environments if of_environments else (None,)
            for environment, section in itertools.product(environments, sections):
                about = () if environment is None else (environment,)
                content = section.make(self.dataset, *about)
                if content is not None:
                    part = ReportPart(section=section, environment=environment, content=content)
                    parts.append(part)
        return tuple(parts)

    @cached_property
    def outcomes(self) -> Mapping[Outcome, int]:
        """Outcome -> how many trials of the search ended with it."""
        counts = Counter(row["outcome"] for row in self.dataset.rows)
        return {outcome: counts[outcome] for outcome in Outcome if outcome in counts}

    @property
    def slot_seconds(self) -> float:
        """Slot time of the search's trials."""
        return _slot_seconds(self.dataset.rows)

    @property
    def follow_up_slot_seconds(self) -> float:
        return _slot_seconds(self.dataset.follow_ups)

    @property
    def headline(self) -> str:
        """``288 trials: 92 ok, 196 skipped; 3 min 47 s of slot time``, and that of follow-ups."""
        ended = [f"{number:,} {outcome}" for outcome, number in self.outcomes.items()]
        trials = count(len(self.dataset.rows), "trial")
        spent = f"{duration(self.slot_seconds)} of slot time"
        if self.dataset.follow_ups:
            follow_ups = count(len(self.dataset.follow_ups), "follow-up")
            spent = f"{spent} (and {duration(self.follow_up_slot_seconds)} for {follow_ups})"
        return f"{trials}: {', '.join(ended) or 'none finished'}; {spent}"


def _slot_seconds(rows: tuple[Row, ...]) -> float:
    return sum(row.get("slot_seconds") or 0.0 for row in rows)
