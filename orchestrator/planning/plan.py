"""The plan: a configuration as trial specs, and as records for the points that cannot run."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.planning.config import SweepConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Every point of a sweep, in exactly one of two places."""

    trials: tuple[TrialSpec, ...]
    ruled_out: tuple[TrialRecord, ...]
    """Outcome UNSUPPORTED, with the rule's name and its reason."""


def plan(config: SweepConfig, *, has_gpu: bool = True) -> Plan:
    """The sweep's trials in the order of the file, and the points that a rule forbids. Pure and deterministic."""
    raise NotImplementedError
