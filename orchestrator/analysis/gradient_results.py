"""Whether the gradients of picks agree with the same weights in fp32, and what else that concerns.

A follow-up compares the gradients of one pick. What it finds concerns every configuration with the
same techniques, because the same code computes their gradients, whatever the size of their batch.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from jobs.flags import Flag, FlagKind
from jobs.gradient_check import GradientCheck
from jobs.spec import Purpose
from orchestrator.analysis.configuration import Configuration
from orchestrator.storage.tables.rows import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientResult:
    """The comparison of one trial's gradients."""

    trial_id: str
    follows_trial: str
    check: GradientCheck | None
    """None: nothing was compared."""
    missing: str
    """Why nothing was compared; empty otherwise."""

    @property
    def differs(self) -> bool:
        """Whether rounding does not explain the difference."""
        return self.check is not None and not self.check.agrees


def gradient_results(rows: Iterable[Row]) -> dict[str, GradientResult]:
    """Trial of the search -> what the comparison of its gradients found."""
    return {
        row["follows_trial"]: GradientResult(
            trial_id=row["trial_id"],
            follows_trial=row["follows_trial"],
            check=GradientCheck.of(row),
            missing=row.get("gradients_missing") or row.get("reason") or "",
        )
        for row in rows
        if row.get("purpose") == Purpose.GRADIENTS
    }


def same_code(configuration: Configuration) -> Hashable:
    """Equal for configurations whose gradients the same code computes."""
    return configuration.techniques, configuration.accumulation > 1


def with_gradient_flags(
    configurations: Iterable[Configuration], results: Mapping[str, GradientResult]
) -> tuple[Configuration, ...]:
    """The configurations, with a flag on all that share code with one whose gradients differ."""
    listed = tuple(configurations)
    flags: dict[Hashable, Flag] = {}
    for own in listed:
        for trial_id in own.trial_ids:
            result = results.get(trial_id)
            if result is not None and result.check is not None and result.differs:
                flags[same_code(own)] = Flag(FlagKind.GRADIENTS_DIFFER, result.check.error)
    return tuple(
        replace(own, flags=(*own.flags, flags[same_code(own)])) if same_code(own) in flags else own
        for own in listed
    )
